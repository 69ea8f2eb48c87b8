//! The read side: sockets, deadlines, and bytes for the HTTP/2 engine.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

use super::{ByteStream, EdgeStream, StreamState, Waiting};
use crate::ConnectionEvent;
use crate::gate::PIECE_BYTES_MAX;
use contract::rejection::Rejection;

/// Result of a read from the client.
pub(super) enum ReadResult {
    Bytes,
    End,
}

/// For the HTTP/2 engine; HTTP/1 is read as a [`crate::http1::Client`].
impl<S: ByteStream> AsyncRead for EdgeStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        if me.connection.is_closed() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let polled = me.poll_h2(cx, buf);
        if polled.is_pending() && me.poll_cancelled(cx) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        polled
    }
}

impl<S: ByteStream> EdgeStream<S> {
    /// Reads a piece and feeds it to the gate.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<ReadResult>> {
        let mut buffer = [MaybeUninit::uninit(); PIECE_BYTES_MAX];
        let mut piece = ReadBuf::uninit(&mut buffer);
        ready!(self.poll_io(cx, &mut piece))?;
        if piece.filled().is_empty() {
            return Poll::Ready(Ok(ReadResult::End));
        }
        if let Some(gate) = &mut self.gate
            && let Err(rejection) = gate.feed(piece.filled())
        {
            self.refuse(rejection);
        }
        Poll::Ready(Ok(ReadResult::Bytes))
    }

    /// Pending until the deadline of the head. Then refuses the request, or ends silently if no byte of it arrived.
    pub(super) fn poll_head_deadline(&mut self, begun: bool, cx: &mut Context<'_>) -> Poll<()> {
        if !begun {
            self.connection.register_idle(cx.waker());
        }
        let deadline = self.head_deadline(begun);
        ready!(self.read_timer.poll(deadline, cx));
        if begun {
            self.refuse(Rejection::RequestTimeout);
        } else {
            self.hooks.connection(ConnectionEvent::Idle);
            // Treated like an end by the client: nothing was sent, so lingering is unnecessary.
            self.ended = true;
        }
        Poll::Ready(())
    }

    fn head_deadline(&mut self, begun: bool) -> Instant {
        match (self.waiting, begun) {
            (Waiting::FirstHead(deadline), _) | (Waiting::Head(deadline), true) => deadline,
            (_, true) => {
                let deadline = Instant::now() + self.settings.head_timeout;
                self.waiting = Waiting::Head(deadline);
                deadline
            }
            (waiting, false) => {
                let since = if let Waiting::Idle(since) = waiting { since } else { Instant::now() };
                self.waiting = Waiting::Idle(since);
                let pressure = self.slot.as_ref().is_some_and(|slot| slot.connections().under_pressure());
                since + if pressure { self.settings.idle_timeout_under_pressure } else { self.settings.idle_timeout }
            }
        }
    }

    /// HTTP/2: bytes pass unchanged. The preface has a deadline, and frames that do no work are counted. The accept
    /// loop times later silence.
    fn poll_h2(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = self.poll_io(cx, buf);
        let Some(flood_guard) = &mut self.flood_guard else { return polled };
        flood_guard.count_forwarded(self.connection.streams().take_forwarded());
        if flood_guard.received(buf.filled().get(before..).unwrap_or_default(), Instant::now()).is_err() {
            self.state = StreamState::Cut;
            self.hooks.connection(ConnectionEvent::Flooded);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "too many frames that do no work")));
        }
        if let (true, Waiting::FirstHead(deadline)) =
            (polled.is_pending() && flood_guard.awaits_preface(), self.waiting)
        {
            ready!(self.read_timer.poll(deadline, cx));
            self.hooks.connection(ConnectionEvent::Idle);
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        polled
    }

    fn poll_io(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(io) = self.io.as_mut().filter(|_| !self.ended) else {
            return Poll::Ready(Ok(()));
        };
        let before = buf.filled().len();
        let read = match ready!(Pin::new(io).poll_read(cx, buf)) {
            // A TLS client closed the connection without a close alert. Every message states its length, so a
            // truncation is detected anyway; this is an ordinary end.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            other => other,
        };
        self.ended = read.is_ok() && buf.filled().len() == before && buf.remaining() > 0;
        if self.ended {
            self.gone_at = Some(Instant::now() + self.settings.half_closed_timeout);
        }
        Poll::Ready(read)
    }
}
