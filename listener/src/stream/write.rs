//! The write side, with a minimum rate. Bytes are buffered until a flush, so that a head and a small body leave in one
//! TLS record and one system call.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;
use tokio::time::Instant;

use super::{ByteStream, EdgeStream, StreamState};
use crate::ConnectionEvent;

/// Size of the buffer: the plaintext of one TLS record.
const BYTES_MAX: usize = 16 * 1024;

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
                    if let Some(flood_guard) = &mut self.flood_guard {
                        flood_guard.sent(*bytes);
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
                self.state = StreamState::Cut;
                if let Some(io) = &self.io {
                    io.abort_on_close();
                }
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

/// Bytes that wait for a flush.
#[derive(Debug, Default)]
pub(super) struct WriteBuffer {
    bytes: Vec<u8>,
    sent: usize,
}

impl WriteBuffer {
    /// Collects as much of `piece` as fits; returns how much. A piece that fills a record is not copied if the buffer
    /// is empty.
    pub(super) fn collect(&mut self, piece: &[u8]) -> usize {
        if self.bytes.is_empty() && piece.len() >= BYTES_MAX {
            return 0;
        }
        let taken = piece.len().min(BYTES_MAX.saturating_sub(self.bytes.len()));
        self.bytes.extend_from_slice(piece.get(..taken).unwrap_or_default());
        taken
    }

    /// Collects `piece` beyond the limit: for our own short error response.
    pub(super) fn append(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// Writes some buffered bytes; zero if the buffer is empty. An idle connection keeps no buffer.
    pub(super) fn poll_send<S: AsyncWrite + Unpin>(
        &mut self,
        io: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let left = self.bytes.get(self.sent..).unwrap_or_default();
        if left.is_empty() {
            self.bytes = Vec::new();
            self.sent = 0;
            return Poll::Ready(Ok(0));
        }
        match Pin::new(io).poll_write(cx, left) {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(sent)) => {
                self.sent += sent;
                Poll::Ready(Ok(sent))
            }
            other => other,
        }
    }

    /// Takes the unsent bytes.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.drain(..std::mem::take(&mut self.sent).min(bytes.len()));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_fill_records_and_large_ones_are_not_copied() {
        let mut out = WriteBuffer::default();
        assert_eq!(out.collect(&[1; BYTES_MAX]), 0, "it is its own record");
        assert_eq!(out.collect(&[1; 9]), 9);
        assert_eq!(out.collect(&[2; BYTES_MAX]), BYTES_MAX - 9);
        assert_eq!(out.collect(&[3; 1]), 0);
        out.append(&[4; 2]);
        assert_eq!(out.collect(&[5; 1]), 0, "the buffer is full");
        let bytes = out.take();
        assert_eq!((bytes.len(), bytes[8], bytes[9], bytes[BYTES_MAX]), (BYTES_MAX + 2, 1, 2, 4));
        assert_eq!(out.collect(&[6; 1]), 1);
    }
}
