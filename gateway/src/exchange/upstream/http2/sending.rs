//! The body of a request on its way over a stream of HTTP/2.

use std::task::{Context, Poll};

use bytes::Bytes;
use h2::SendStream;

use crate::exchange::downstream::Downstream;
use crate::exchange::upstream::RequestBody;
use crate::exchange::upstream::wait_limits::Waits;

/// A request body that is sent over a stream.
pub(in crate::exchange::upstream) struct Sending {
    stream: SendStream<Bytes>,
    /// What the upstream is to take next.
    pending: Bytes,
    /// Nothing more will be sent: all was, or the upstream takes no more.
    is_over: bool,
}

impl Sending {
    pub(super) fn new(stream: SendStream<Bytes>, is_over: bool) -> Self {
        Self { stream, is_over, pending: Bytes::new() }
    }

    /// Whether nothing more will be sent.
    pub(in crate::exchange::upstream) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Sends as much as is there and the upstream takes, and says what is waited for then; `moved` is set when something
    /// was sent. Why an upstream takes no more, its response says.
    ///
    /// # Errors
    /// When the client breaks off, or its body is larger than it may be.
    pub(in crate::exchange::upstream) fn poll(
        &mut self,
        request_body: &mut RequestBody,
        client: &mut impl Downstream,
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> pingora::Result<Waits> {
        while !self.is_over {
            if self.pending.is_empty() {
                match request_body.poll_piece(client, cx) {
                    Poll::Ready(Ok(Some(piece))) => self.pending = piece,
                    Poll::Ready(Ok(None)) => {
                        self.end(request_body);
                        break;
                    }
                    Poll::Ready(Err(error)) => return Err(error),
                    Poll::Pending => return Ok(Waits::Client),
                }
            }
            self.stream.reserve_capacity(self.pending.len());
            let room = match self.stream.capacity() {
                0 => match self.stream.poll_capacity(cx) {
                    Poll::Ready(Some(Ok(room))) => room,
                    Poll::Ready(_) => {
                        self.is_over = true;
                        break;
                    }
                    Poll::Pending => return Ok(Waits::Upstream),
                },
                room => room,
            };
            self.give(room, request_body);
            *moved = true;
        }
        Ok(Waits::Response)
    }

    fn give(&mut self, room: usize, request_body: &RequestBody) {
        let piece = self.pending.split_to(room.min(self.pending.len()));
        let is_last = self.pending.is_empty() && request_body.is_given() && request_body.trailers().is_none();
        self.is_over = self.stream.send_data(piece, is_last).is_err() || is_last;
    }

    fn end(&mut self, request_body: &RequestBody) {
        // One that fails is of a stream that has ended. The trailers stay: another connection may need them.
        let _ = match request_body.trailers() {
            Some(trailers) => self.stream.send_trailers(trailers.clone()),
            None => self.stream.send_data(Bytes::new(), true),
        };
        self.is_over = true;
    }
}
