//! How much a client may send before it hears from us: as much as its line holds.
//!
//! A window of W moves W in a round trip, however wide the line. So while bodies come, a PING measures a round trip: where
//! half a window is taken and sent on in as much time, the window is what holds the client up, and is doubled. What a client
//! may send comes in bursts, a round trip apart; so bytes and time count from one PING's end to the next one's. Bytes count
//! when they leave for an upstream, so that one which reads slowly never has more of them lying here.
//!
//! What windows have grown by is memory that clients may fill when an upstream stops reading. All connections share a bound
//! ([`DoorSettings::windows_bytes`](crate::DoorSettings)): beyond it, windows stay as they are. While memory is short
//! they go back to what they were.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::{Ping, PingPong};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::Connection;

/// The window of a stream at first.
pub(super) const STREAM: u32 = 256 * 1024;
/// The window of a connection at first.
pub(super) const CONNECTION: u32 = 1024 * 1024;
/// The largest window, of a stream as of a connection: 160 MB a second at a round trip of 50 ms, and more than 50 MB at 150.
const MAX: u32 = 16 * 1024 * 1024;
/// A round trip is measured when so much was taken since the last one.
const SAMPLE: u64 = STREAM as u64 / 2;

/// See the module.
pub(super) struct Windows {
    connection: Arc<Connection>,
    /// `None` until something is measured, and when the engine measures no more.
    pings: Option<PingPong>,
    /// The engine has been asked for them.
    has_begun: bool,
    /// When the round trip began that is being measured.
    began: Option<Instant>,
    /// What was taken when the last one ended, and when that was.
    marked: (u64, Instant),
    /// Of a stream. A connection has as much, and [`CONNECTION`] at least.
    size: u32,
}

impl Windows {
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        let connection = Arc::clone(connection);
        Self { connection, pings: None, has_begun: false, began: None, marked: (0, Instant::now()), size: STREAM }
    }

    /// Looks at how much comes. Called whenever the engine runs, before it does.
    pub(super) fn adjust<T>(&mut self, engine: &mut h2::server::Connection<T, Bytes>, cx: &mut Context<'_>)
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        if self.size > STREAM && self.connection.is_pressed() {
            self.resize(engine, STREAM);
        }
        let taken = self.connection.streams().taken();
        let fresh = taken.saturating_sub(self.marked.0);
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
                    let (round_trip, span) = (now - began, now - self.marked.1);
                    (self.began, self.marked) = (None, (taken, now));
                    let is_full = holds_up(fresh, span.as_nanos(), round_trip.as_nanos(), self.size);
                    if is_full && !self.connection.is_pressed() {
                        self.resize(engine, self.size.saturating_mul(2).min(MAX));
                    }
                }
            }
        } else if fresh >= SAMPLE && self.size < MAX && pings.send_ping(Ping::opaque()).is_ok() {
            self.began = Some(Instant::now());
            // Nothing can have come yet: this asks to be woken.
            if let Poll::Ready(Err(_)) = pings.poll_pong(cx) {
                self.pings = None;
            }
        }
    }

    /// Where there is room for it, and the client has acknowledged the size before.
    fn resize<T>(&mut self, engine: &mut h2::server::Connection<T, Bytes>, size: u32)
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let (before, after) = (self.size.max(CONNECTION), size.max(CONNECTION));
        if !self.connection.grow_window(before, after) {
            return;
        }
        if engine.set_initial_window_size(size).is_err() {
            self.connection.grow_window(after, before);
            return;
        }
        engine.set_target_window_size(after);
        self.size = size;
    }
}

/// Whether half a window and more is taken in a round trip, where so many bytes were in a span of time.
fn holds_up(bytes: u64, span: u128, round_trip: u128, window: u32) -> bool {
    u128::from(bytes) * round_trip * 2 >= u128::from(window) * span
}

impl Drop for Windows {
    fn drop(&mut self) {
        self.connection.grow_window(self.size.max(CONNECTION), CONNECTION);
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
            // The other half of a burst had been taken when the PING left.
            (STREAM, 201, 200, true),
            (STREAM / 2, 200, 200, true),
            (STREAM / 2 - 1, 200, 200, false),
            // A slow client, however far away.
            (STREAM / 2, 10_000, 200, false),
            (STREAM, 10_000, 200, false),
            // A fast one nearby: it does not wait for windows.
            (STREAM, 10, 1, false),
        ] {
            let verdict = holds_up(bytes.into(), millis(span), millis(round_trip), STREAM);
            assert_eq!(verdict, is_full, "{bytes} bytes in {span} ms, {round_trip} ms away");
        }
    }
}
