//! Answers that are known before the proxy sees the request.
//!
//! The proxy library costs most of a request, and a request that is refused or redirected needs nothing of it. So the
//! head of a request without a body is shown to the [`Doorman`](crate::door::Doorman) first. Its answer goes out here,
//! between two reads of the proxy, which never learns that there was a request; everything else goes on to the proxy.
//! Connections whose requests are forwarded do not pay for it: after one of them, heads pass unseen
//! ([`Connection::try_early`](crate::door::Connection::try_early)).

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use super::{EdgeStream, Standing, Transport, Waiting};
use crate::door::{Early, EarlyHead};

/// The proxy library waits a minute for the first request of a connection, and then hangs up even where it was given
/// none because all were answered here. A connection that is this old by then is asked to leave in time.
const UNSEEN_MAX: Duration = Duration::from_secs(40);

/// Of one connection.
#[derive(Debug)]
pub(super) struct EarlyState {
    opened: Instant,
    /// Heads shown so far, or passed unseen: each is looked at once.
    shown: u32,
    /// The proxy was given a request, after which it waits for more as long as we do.
    proxy_knows: bool,
    /// An answer is on its way.
    sending: bool,
}

impl EarlyState {
    pub(super) fn new(opened: Instant) -> Self {
        Self { opened, shown: 0, proxy_knows: false, sending: false }
    }
}

impl<S: Transport> EdgeStream<S> {
    /// Looks at the head that was released last. True when it is answered, and is nothing to the proxy any more.
    pub(super) fn answer_early(&mut self) -> bool {
        let Some(gate) = self.gate.as_mut().filter(|gate| gate.heads() != self.early.shown) else {
            return false;
        };
        self.early.shown = gate.heads();
        let bare = self.connection.tries_early().then(|| gate.bare_head()).flatten();
        let known = bare.map_or(Early::Pass, |(bytes, head)| {
            let in_time = self.early.proxy_knows || self.early.opened.elapsed() < UNSEEN_MAX;
            let head = EarlyHead { bytes, keep_alive: head.keep_alive && in_time };
            self.doorman.early(&head, &self.connection)
        });
        let Early::Answered { response, closes } = known else {
            self.early.proxy_knows = true;
            return false;
        };
        gate.consume(gate.ready().len());
        self.out.append(&response);
        self.waiting = Waiting::Nothing;
        if closes {
            // The proxy sees the end of the connection; what lies here is sent when the stream is dropped.
            self.standing = Standing::Answered;
            self.connection.request_done();
        } else {
            self.early.sending = true;
        }
        true
    }

    /// Pending while an early answer is on its way: the next head is not read before, so that a client that does not
    /// read its answers cannot make them pile up here.
    pub(super) fn poll_early_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.early.sending {
            ready!(self.poll_flush_all(cx))?;
            self.early.sending = false;
            self.connection.request_done();
        }
        Poll::Ready(Ok(()))
    }
}
