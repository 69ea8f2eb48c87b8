//! Sends the body of a request over a stream of HTTP/2, as it arrives.

use std::task::{Context, Poll};

use bytes::Bytes;
use h2::SendStream;

use crate::exchange::downstream::Downstream;
use crate::exchange::upstream::RequestBody;
use crate::exchange::upstream::wait_limits::Waits;

/// A request body that is being sent over a stream.
pub(super) struct BodySender {
    stream: SendStream<Bytes>,
    /// The bytes to send next.
    pending: Bytes,
    /// Everything was sent, or the upstream accepts no more.
    pub(super) is_over: bool,
}

impl BodySender {
    pub(super) fn new(stream: SendStream<Bytes>, is_over: bool) -> Self {
        Self { stream, is_over, pending: Bytes::new() }
    }

    /// Sends as much as is available and the upstream accepts, and returns what to wait for; sets `moved` if something
    /// was sent. If the upstream accepts no more, its response says why.
    ///
    /// # Errors
    /// If the client breaks off, or its body exceeds the limit.
    pub(super) fn poll(
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
                    Poll::Pending if request_body.is_switched() => return Ok(Waits::Either),
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
            self.send(room, request_body);
            *moved = true;
        }
        Ok(if request_body.has_hung_up() { Waits::Nothing } else { Waits::Response })
    }

    fn send(&mut self, room: usize, request_body: &RequestBody) {
        let piece = self.pending.split_to(room.min(self.pending.len()));
        let is_last = self.pending.is_empty() && request_body.is_given() && request_body.trailers().is_none();
        self.is_over = self.stream.send_data(piece, is_last).is_err() || is_last;
    }

    fn end(&mut self, request_body: &RequestBody) {
        // An error means that the stream has ended. The trailers are kept: another attempt may need them.
        let _ = match request_body.trailers() {
            Some(trailers) => self.stream.send_trailers(trailers.clone()),
            None => self.stream.send_data(Bytes::new(), true),
        };
        self.is_over = true;
    }
}
