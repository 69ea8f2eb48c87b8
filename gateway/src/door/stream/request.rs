//! The stream as whoever serves requests without the proxy library sees it: heads that have passed the gate, and a client
//! that may leave.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::Instant;

use super::read::Brought;
use super::{EdgeStream, Standing, Transport, Waiting};
use crate::door::connection::Connection;
use crate::door::gate::{Gate, Want};
use crate::door::head::Head;
use crate::door::http1::Client;

impl<S: Transport> EdgeStream<S> {
    /// Ready when a request waits, with true; with false when there will be no other.
    pub(crate) fn poll_request(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            if self.connection.is_closed() || self.standing != Standing::Good {
                return Poll::Ready(false);
            }
            let Some(gate) = &mut self.gate else {
                return Poll::Ready(false);
            };
            if self.connection.done() == gate.heads()
                && let Err(rejection) = gate.response_complete()
            {
                self.refuse(rejection);
                continue;
            }
            if !gate.ready().is_empty() {
                return Poll::Ready(true);
            }
            let Want::Head { begun } = gate.want() else {
                return Poll::Ready(false);
            };
            match self.poll_piece(cx) {
                Poll::Ready(Ok(Brought::Bytes)) => {}
                Poll::Ready(Ok(Brought::End) | Err(_)) => return Poll::Ready(false),
                Poll::Pending if self.poll_cancelled(cx) => return Poll::Ready(false),
                Poll::Pending => ready!(self.poll_head_deadline(begun, cx)),
            }
        }
    }

    /// Whether nothing of a next request has come.
    pub(crate) fn is_resting(&self) -> bool {
        self.gate.as_ref().is_none_or(|gate| gate.want() == Want::Head { begun: false })
    }
}

impl<S: Transport> Client for EdgeStream<S> {
    fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    fn bare_head(&self) -> Option<(&[u8], Head)> {
        self.gate.as_ref().and_then(Gate::bare_head)
    }

    fn take_head(&mut self) {
        if let Some(gate) = &mut self.gate {
            gate.consume(gate.ready().len());
        }
        self.waiting = Waiting::Nothing;
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.connection.is_closed() {
            // Bytes of a later message say that the client is there, and wait.
            let waits = self.gate.as_ref().is_some_and(Gate::holds);
            match if waits { Poll::Pending } else { self.poll_piece(cx) } {
                Poll::Ready(Ok(Brought::Bytes)) => {}
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
