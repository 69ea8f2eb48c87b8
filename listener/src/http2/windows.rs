//! Flow-control windows that grow to the bandwidth-delay product.
//!
//! A window of W bytes moves W bytes per round trip, however fast the line. While bodies arrive, a PING measures the
//! round trip; if half a window is consumed and forwarded in that time, the window limits the client and is doubled.
//! Clients send in bursts, one round trip apart, so bytes and time are counted from the end of one PING to the end of
//! the next. Bytes count when they are sent to an upstream, so that a slow upstream never makes windows grow.
//!
//! Grown windows are memory that clients may fill when an upstream stops reading. All connections share a bound
//! ([`ListenerSettings::windows_bytes`](crate::ListenerSettings)): beyond it, windows do not grow. While memory is
//! scarce they shrink to their first size.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::{Ping, PingPong};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::Connection;

/// The initial window of a stream.
pub(super) const STREAM: u32 = 256 * 1024;
/// The initial window of a connection.
pub(super) const CONNECTION: u32 = 1024 * 1024;
/// The largest window of a stream or connection: 160 MB/s at a round trip of 50 ms, and more than 50 MB/s at 150 ms.
const MAX: u32 = 16 * 1024 * 1024;
/// A round trip is measured after this many consumed bytes.
const SAMPLE: u64 = STREAM as u64 / 2;

/// The windows of one connection, and the current measurement.
pub(super) struct Windows {
    connection: Arc<Connection>,
    /// `None` before the first measurement, and after the engine refused one.
    pings: Option<PingPong>,
    /// The engine was asked for its PING handle.
    has_begun: bool,
    /// Start of the current round trip.
    began: Option<Instant>,
    /// Bytes consumed by the end of the last round trip, and when it ended.
    last_sample: (u64, Instant),
    /// The window of a stream. The connection's window is the same, but at least [`CONNECTION`].
    size: u32,
}

impl Windows {
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        let connection = Arc::clone(connection);
        Self { connection, pings: None, has_begun: false, began: None, last_sample: (0, Instant::now()), size: STREAM }
    }

    /// Measures and adjusts. Call it before every run of the engine.
    pub(super) fn adjust<T>(&mut self, engine: &mut h2::server::Connection<T, Bytes>, cx: &mut Context<'_>)
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        if self.size > STREAM && self.connection.is_pressed() {
            self.resize(engine, STREAM);
        }
        let received = self.connection.streams().received();
        let fresh = received.saturating_sub(self.last_sample.0);
        if fresh >= SAMPLE && !std::mem::replace(&mut self.has_begun, true) {
            self.pings = engine.ping_pong();
        }
        let Some(pings) = self.pings.as_mut() else { return };
        if let Some(began) = self.began {
            match pings.poll_pong(cx) {
                Poll::Pending => {}
                Poll::Ready(Err(_)) => self.pings = None,
                Poll::Ready(Ok(_)) => {
                    let now = Instant::now();
                    let (round_trip, span) = (now - began, now - self.last_sample.1);
                    (self.began, self.last_sample) = (None, (received, now));
                    let is_full = limits_client(fresh, span.as_nanos(), round_trip.as_nanos(), self.size);
                    if is_full && !self.connection.is_pressed() {
                        self.resize(engine, self.size.saturating_mul(2).min(MAX));
                    }
                }
            }
        } else if fresh >= SAMPLE && self.size < MAX && pings.send_ping(Ping::opaque()).is_ok() {
            self.began = Some(Instant::now());
            // No answer can have arrived yet: this registers the task.
            if let Poll::Ready(Err(_)) = pings.poll_pong(cx) {
                self.pings = None;
            }
        }
    }

    /// Resizes if the budget allows it and the client has acknowledged the previous size.
    fn resize<T>(&mut self, engine: &mut h2::server::Connection<T, Bytes>, size: u32)
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let (before, after) = (self.size.max(CONNECTION), size.max(CONNECTION));
        if !self.connection.resize_window(before, after) {
            return;
        }
        if engine.set_initial_window_size(size).is_err() {
            self.connection.resize_window(after, before);
            return;
        }
        engine.set_target_window_size(after);
        self.size = size;
    }
}

/// Whether at least half a window moves in one round trip, if `bytes` moved in `span`.
fn limits_client(bytes: u64, span: u128, round_trip: u128, window: u32) -> bool {
    u128::from(bytes) * round_trip * 2 >= u128::from(window) * span
}

impl Drop for Windows {
    fn drop(&mut self) {
        self.connection.resize_window(self.size.max(CONNECTION), CONNECTION);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_too_small_where_half_of_it_moves_in_a_round_trip() {
        let millis = |millis: u128| millis * 1_000_000;
        for (bytes, span, round_trip, is_full) in [
            (STREAM, 200, 200, true),
            // The other half of a burst had been consumed when the PING left.
            (STREAM, 201, 200, true),
            (STREAM / 2, 200, 200, true),
            (STREAM / 2 - 1, 200, 200, false),
            // A slow client at any distance.
            (STREAM / 2, 10_000, 200, false),
            (STREAM, 10_000, 200, false),
            // A fast client nearby: it does not wait for windows.
            (STREAM, 10, 1, false),
        ] {
            let verdict = limits_client(bytes.into(), millis(span), millis(round_trip), STREAM);
            assert_eq!(verdict, is_full, "{bytes} bytes in {span} ms, {round_trip} ms away");
        }
    }
}
