//! The stream as an HTTP/1 request handler reads it: heads and bodies that have passed the gate, the deadlines of
//! heads, and notice of a client that disconnects.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{BufMut as _, BytesMut};
use tokio::io::ReadBuf;
use tokio::time::Instant;
use tokio_util::io::poll_read_buf;

use super::{ByteStream, ClientStream, MinimumRateTimer, StreamState, Waiting};
use crate::ConnectionEvent;
use crate::client::{BodyReadError, Client};
use crate::connection::Connection;
use crate::gate::{Gate, NextRead, PIECE_BYTES_MAX};
use crate::head::Head;
use contract::rejection::Rejection;

/// The most bytes of a body per read.
const BODY_READ_BYTES: usize = 32 * 1024;

/// Result of a read from the client.
enum ReadResult {
    Bytes,
    End,
}

impl<S: ByteStream> ClientStream<S> {
    /// Ready with true when a request is pending, with false when there will be no other. The previous request is done.
    pub(crate) fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            if self.connection.is_closed() || self.state != StreamState::Open {
                return Poll::Ready(false);
            }
            let Some(gate) = &mut self.gate else {
                return Poll::Ready(false);
            };
            if gate.head().is_some() {
                return Poll::Ready(true);
            }
            if let Err(rejection) = gate.response_complete() {
                self.refuse(rejection);
                continue;
            }
            if gate.head().is_some() {
                return Poll::Ready(true);
            }
            let NextRead::Head { begun } = gate.want() else {
                return Poll::Ready(false);
            };
            match self.poll_piece(cx) {
                Poll::Ready(Ok(ReadResult::Bytes)) => {}
                Poll::Ready(Ok(ReadResult::End) | Err(_)) => return Poll::Ready(false),
                Poll::Pending if self.poll_cancelled(cx) => return Poll::Ready(false),
                Poll::Pending => ready!(self.poll_head_deadline(begun, cx)),
            }
        }
    }

    /// Whether no byte of a next request has arrived.
    pub(crate) fn is_idle(&self) -> bool {
        self.gate.as_ref().is_none_or(|gate| gate.want() == NextRead::Head { begun: false })
    }

    /// Reads a piece and feeds it to the gate.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<ReadResult>> {
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
    fn poll_head_deadline(&mut self, begun: bool, cx: &mut Context<'_>) -> Poll<()> {
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

    /// Stops reading the body. The connection may linger, so that the client can read the answer.
    fn break_off(&mut self, rejection: Rejection) -> BodyReadError {
        self.state = StreamState::Refused;
        BodyReadError::Refused(rejection)
    }

    /// Reads at most `most` bytes straight into `into`.
    fn poll_into(&mut self, into: &mut BytesMut, most: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some(io) = self.io.as_mut().filter(|_| !self.ended) else {
            return Poll::Ready(Ok(0));
        };
        into.reserve(most.min(BODY_READ_BYTES));
        let read = match ready!(poll_read_buf(Pin::new(io), cx, &mut (&mut *into).limit(most))) {
            // An ordinary end, see `poll_io`.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            other => other,
        };
        self.ended = matches!(read, Ok(0));
        Poll::Ready(read)
    }
}

impl<S: ByteStream> Client for ClientStream<S> {
    fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    fn head(&self) -> Option<(&[u8], Head)> {
        self.gate.as_ref().and_then(Gate::head)
    }

    fn take_head(&mut self) {
        if let Some(gate) = &mut self.gate {
            gate.take_head();
        }
        self.body_rate = MinimumRateTimer::new(self.settings.body_minimum_rate);
        self.waiting = Waiting::Nothing;
    }

    fn poll_body(&mut self, into: &mut BytesMut, cx: &mut Context<'_>) -> Poll<Result<usize, BodyReadError>> {
        loop {
            let Some(gate) = self.gate.as_mut().filter(|_| !self.connection.is_closed()) else {
                return Poll::Ready(Err(BodyReadError::Gone));
            };
            let ready = gate.ready();
            if !ready.is_empty() {
                let bytes = ready.len();
                into.put_slice(ready);
                gate.consume(bytes);
                return Poll::Ready(Ok(bytes));
            }
            let most = match gate.want() {
                NextRead::Body { most } => most,
                NextRead::Anything => usize::MAX,
                NextRead::Nothing => return Poll::Ready(Err(BodyReadError::Refused(Rejection::BadFraming))),
                NextRead::Head { .. } | NextRead::Response => return Poll::Ready(Ok(0)),
            };
            let switched = most == usize::MAX;
            let before = into.len();
            let brought = match self.poll_into(into, most, cx) {
                Poll::Ready(Ok(brought)) if switched => return Poll::Ready(Ok(brought)),
                Poll::Ready(Ok(brought @ 1..)) => brought,
                Poll::Ready(_) => return Poll::Ready(Err(BodyReadError::Gone)),
                Poll::Pending if self.poll_cancelled(cx) => return Poll::Ready(Err(BodyReadError::Gone)),
                Poll::Pending if switched => return Poll::Pending,
                Poll::Pending => {
                    let until = self.body_rate.wait(Instant::now());
                    ready!(self.read_timer.poll(until, cx));
                    return Poll::Ready(Err(self.break_off(Rejection::RequestTimeout)));
                }
            };
            self.body_rate.moved(brought, Instant::now());
            // Bytes that do not belong to the body are removed.
            let passed = self.gate.as_mut().map(|gate| gate.pass(into.get_mut(before..).unwrap_or_default()));
            match passed {
                Some(Ok(kept)) => into.truncate(before + kept),
                Some(Err(rejection)) => {
                    into.truncate(before);
                    return Poll::Ready(Err(self.break_off(rejection)));
                }
                None => {}
            }
            if into.len() > before {
                return Poll::Ready(Ok(into.len() - before));
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.gate.as_ref().is_some_and(Gate::is_whole)
    }

    fn switch(&mut self) {
        if let Some(gate) = &mut self.gate {
            gate.open();
        }
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.connection.is_closed() {
            if let Some(at) = self.gone_at {
                if self.poll_cancelled(cx) {
                    break;
                }
                return self.read_timer.poll(at, cx);
            }
            // Bytes of a later message show that the client is present, and are buffered. The rest of a body is read by
            // `poll_body`.
            let waits =
                self.gate.as_ref().is_some_and(|gate| gate.has_later_bytes() || gate.want() != NextRead::Response);
            match if waits { Poll::Pending } else { self.poll_piece(cx) } {
                Poll::Ready(Ok(ReadResult::Bytes)) => {}
                Poll::Ready(Ok(ReadResult::End)) if self.gone_at.is_some() => {}
                Poll::Pending if !self.poll_cancelled(cx) => return Poll::Pending,
                _ => break,
            }
        }
        Poll::Ready(())
    }

    fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.read_timer.poll(deadline, cx)
    }
}
