//! The write side: buffered, with a minimum rate.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;
use tokio::time::Instant;

use super::{ByteStream, EdgeStream, Standing};
use crate::ConnectionEvent;

impl<S: ByteStream> AsyncWrite for EdgeStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        me.check_open()?;
        let mut collected = me.out.collect(bytes);
        if collected == 0 {
            ready!(me.poll_send_all(cx))?;
            collected = me.out.collect(bytes);
        }
        if collected > 0 {
            return Poll::Ready(Ok(collected));
        }
        me.poll_timed(cx, |io, cx| Pin::new(io).poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        me.check_open()?;
        if me.connection.defer_flush() {
            return Poll::Ready(Ok(()));
        }
        me.poll_flush_all(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        me.check_open()?;
        ready!(me.poll_send_all(cx))?;
        me.poll_timed(cx, |io, cx| Pin::new(io).poll_shutdown(cx).map_ok(|()| 0)).map_ok(|_| ())
    }
}

impl<S: ByteStream> EdgeStream<S> {
    fn check_open(&self) -> io::Result<()> {
        if self.connection.is_closed() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    /// Sends the buffer, through to the socket.
    pub(super) fn poll_flush_all(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send_all(cx))?;
        self.poll_timed(cx, |io, cx| Pin::new(io).poll_flush(cx).map_ok(|()| 0)).map_ok(|_| ())
    }

    fn poll_send_all(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut out = std::mem::take(&mut self.out);
            let sent = self.poll_timed(cx, |io, cx| out.poll_send(io, cx));
            self.out = out;
            if ready!(sent)? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Writes while the client keeps the minimum rate of reading. A slower client is cut off: unread bytes occupy
    /// memory and often a connection to an upstream.
    fn poll_timed(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut S, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let Some(io) = self.io.as_mut() else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        match write(io, cx) {
            Poll::Ready(result) => {
                if let Ok(bytes) = &result {
                    self.write_rate.moved(*bytes, Instant::now());
                    if let Some(frames) = &mut self.frames {
                        frames.sent(*bytes);
                    }
                }
                Poll::Ready(result)
            }
            Poll::Pending => {
                if self.poll_cancelled(cx) {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
                let until = self.write_rate.wait(Instant::now());
                ready!(self.write_timer.poll(until, cx));
                self.hooks.connection(ConnectionEvent::Stalled);
                self.standing = Standing::Cut;
                if let Some(io) = &self.io {
                    io.give_up();
                }
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}
