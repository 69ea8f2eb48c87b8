//! The read side: sockets, deadlines and the gate between them and the proxy.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

use super::{EdgeStream, Standing, Transport, Waiting};
use crate::door::ConnectionEvent;
use crate::door::gate::{PIECE_BYTES_MAX, Want};
use crate::rejection::Rejection;

/// What the client brought into a buffer of ours.
pub(super) enum Brought {
    Bytes,
    End,
}

impl<S: Transport> AsyncRead for EdgeStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        if me.connection.is_closed() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let polled = if me.gate.is_some() { me.poll_gated(cx, buf) } else { me.poll_h2(cx, buf) };
        if polled.is_pending() && me.poll_cancelled(cx) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        polled
    }
}

impl<S: Transport> EdgeStream<S> {
    fn poll_gated(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.standing {
                Standing::Good => {}
                Standing::Answered => return Poll::Ready(Ok(())),
                Standing::Refused => return Poll::Ready(Err(self.refused_body())),
            }
            let Some(gate) = &mut self.gate else {
                return Poll::Ready(Ok(()));
            };
            if self.connection.is_upgraded() {
                gate.open();
            } else if self.connection.done() == gate.heads()
                && let Err(rejection) = gate.response_complete()
            {
                self.refuse(rejection);
                continue;
            }
            let ready = gate.ready();
            if !ready.is_empty() {
                let taken = ready.len().min(buf.remaining());
                buf.put_slice(ready.get(..taken).unwrap_or_default());
                gate.consume(taken);
                self.waiting = Waiting::Nothing;
                return Poll::Ready(Ok(()));
            }
            match gate.want() {
                Want::Head { begun } => match self.poll_piece(cx) {
                    Poll::Ready(Ok(Brought::Bytes)) => {}
                    Poll::Ready(Ok(Brought::End)) => return Poll::Ready(Ok(())),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => ready!(self.poll_head_deadline(begun, cx)),
                },
                Want::Body { most } => return self.poll_body(most, cx, buf),
                // The proxy looks whether its client is still there. Bytes of a later message say that it is, and wait.
                Want::Response if gate.holds() => ready!(self.poll_answer_deadline(cx)),
                Want::Response => match self.poll_piece(cx) {
                    Poll::Ready(Ok(Brought::Bytes)) => {}
                    Poll::Ready(Ok(Brought::End)) => return Poll::Ready(Ok(())),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => ready!(self.poll_answer_deadline(cx)),
                },
                Want::Anything => return self.poll_io(cx, buf),
                Want::Nothing => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Brings some bytes to the gate.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Brought>> {
        let mut room = [MaybeUninit::uninit(); PIECE_BYTES_MAX];
        let mut piece = ReadBuf::uninit(&mut room);
        ready!(self.poll_io(cx, &mut piece))?;
        if piece.filled().is_empty() {
            return Poll::Ready(Ok(Brought::End));
        }
        if let Some(gate) = &mut self.gate
            && let Err(rejection) = gate.feed(piece.filled())
        {
            self.refuse(rejection);
        }
        Poll::Ready(Ok(Brought::Bytes))
    }

    /// Reads body bytes straight into the proxy's buffer and takes back what does not belong to the body.
    fn poll_body(&mut self, most: usize, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.pace_this_body();
        let before = buf.filled().len();
        let polled = if buf.remaining() <= most {
            self.poll_io(cx, buf)
        } else {
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
            let polled = self.poll_io(cx, &mut part);
            let brought = part.filled().len();
            buf.advance(brought);
            polled
        };
        match polled {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {
                let until = self.body_pace.wait(Instant::now());
                let until = self.connection.ends_by().map_or(until, |ends| ends.min(until));
                ready!(self.read_timer.poll(until, cx));
                self.refuse(Rejection::RequestTimeout);
                return Poll::Ready(Err(self.refused_body()));
            }
        }
        let brought = buf.filled().get(before..).unwrap_or_default();
        self.body_pace.moved(brought.len(), Instant::now());
        let Some(gate) = self.gate.as_mut().filter(|_| !brought.is_empty()) else {
            return Poll::Ready(Ok(()));
        };
        match gate.pass(brought) {
            Ok(used) => {
                buf.set_filled(before + used);
                Poll::Ready(Ok(()))
            }
            Err(rejection) => {
                buf.set_filled(before);
                self.refuse(rejection);
                Poll::Ready(Err(self.refused_body()))
            }
        }
    }

    /// Every body starts with a fresh allowance.
    fn pace_this_body(&mut self) {
        let heads = self.gate.as_ref().map_or(0, super::Gate::heads);
        if self.body_of != heads {
            self.body_of = heads;
            self.body_pace = super::Pace::new(self.settings.body_pace);
        }
    }

    /// Pending until the time for a head is over; then the refusal, or a silent end if not a byte of it came.
    pub(super) fn poll_head_deadline(&mut self, begun: bool, cx: &mut Context<'_>) -> Poll<()> {
        if !begun {
            self.connection.rests(cx.waker());
        }
        let deadline = self.head_deadline(begun);
        ready!(self.read_timer.poll(deadline, cx));
        if begun {
            self.refuse(Rejection::RequestTimeout);
        } else {
            self.doorman.connection(ConnectionEvent::Idle);
            // An end like the client's own: nothing was sent, so there is nothing to linger for.
            self.ended = true;
        }
        Poll::Ready(())
    }

    /// Pending until the upstream's time to answer is over, if it has one; then the proxy has to answer in its place.
    fn poll_answer_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.connection.answer_by() else {
            return Poll::Pending;
        };
        ready!(self.read_timer.poll(deadline, cx));
        self.refuse(Rejection::UpstreamTimeout);
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

    /// HTTP/2: bytes pass as they came. The preface has a deadline, frames that do no work are counted; later silence is
    /// timed where its engine is.
    fn poll_h2(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = self.poll_io(cx, buf);
        let Some(frames) = &mut self.frames else { return polled };
        if frames.came(buf.filled().get(before..).unwrap_or_default(), Instant::now()).is_err() {
            self.doorman.connection(ConnectionEvent::Flooded);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "too many frames that do no work")));
        }
        if let (true, Waiting::FirstHead(deadline)) = (polled.is_pending() && frames.awaits_preface(), self.waiting) {
            ready!(self.read_timer.poll(deadline, cx));
            self.doorman.connection(ConnectionEvent::Idle);
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
            // A TLS client that leaves without saying so. Every message states its length, so nothing can be cut short
            // unnoticed, and it is an end like any other.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            other => other,
        };
        self.ended = read.is_ok() && buf.filled().len() == before && buf.remaining() > 0;
        Poll::Ready(read)
    }

    fn refused_body(&self) -> io::Error {
        let (kind, code) = match self.connection.refusal() {
            Some(Rejection::RequestTimeout) => (io::ErrorKind::TimedOut, Rejection::RequestTimeout.code()),
            other => (io::ErrorKind::InvalidData, other.unwrap_or(Rejection::BadFraming).code()),
        };
        io::Error::new(kind, code)
    }
}
