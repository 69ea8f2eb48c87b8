//! The minimum rate at which the client of an HTTP/2 connection must read.
//!
//! The rate applies to the connection, as with HTTP/1, and not to each stream: over a thin line a hundred images arrive
//! one after the other, and the waiting ones are not slow. Therefore every byte that any stream sends counts for all
//! waiting streams in equal parts: a client with a hundred waiting streams has to read a hundred times as much.
//!
//! Pure: the time is an argument.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::connection::Connection;
use crate::minimum_rate::MinimumRateTimer;

/// Measures how fast the client reads the response of one stream.
#[derive(Debug)]
pub struct ReaderRateTimer {
    connection: Arc<Connection>,
    timer: MinimumRateTimer,
    /// The connection's earned time at the last check.
    seen: u64,
    /// This stream is counted as waiting.
    waits: bool,
}

impl ReaderRateTimer {
    /// Starts for a stream of this connection.
    pub fn new(connection: &Arc<Connection>) -> Self {
        let timer = MinimumRateTimer::new(connection.write_minimum_rate());
        Self { connection: Arc::clone(connection), timer, seen: 0, waits: false }
    }

    /// Starts waiting for the client; returns the deadline.
    pub fn wait(&mut self, now: Instant) -> Instant {
        let streams = self.connection.streams();
        let earned = streams.earned.load(Ordering::Relaxed);
        if !std::mem::replace(&mut self.waits, true) {
            streams.waiting.fetch_add(1, Ordering::Relaxed);
        } else if earned != self.seen {
            self.timer.earned(Duration::from_micros(earned.wrapping_sub(self.seen)), now);
        }
        self.seen = earned;
        self.timer.wait(now)
    }

    /// The client took `bytes`.
    pub fn moved(&mut self, bytes: usize, now: Instant) {
        let streams = self.connection.streams();
        let waiting = streams.waiting.load(Ordering::Relaxed).max(1);
        let rate = u64::from(self.connection.write_minimum_rate().bytes_per_second.max(1)) * u64::from(waiting);
        let share = (bytes as u64).saturating_mul(1_000_000) / rate;
        let earned = streams.earned.fetch_add(share, Ordering::Relaxed).wrapping_add(share);
        if self.waits {
            self.timer.earned(Duration::from_micros(earned.wrapping_sub(self.seen)), now);
            self.stop_waiting();
        } else {
            self.timer.earned(Duration::from_micros(share), now);
        }
    }

    fn stop_waiting(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.connection.streams().waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for ReaderRateTimer {
    fn drop(&mut self) {
        self.stop_waiting();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Addresses;

    fn connection() -> Arc<Connection> {
        let address = "192.0.2.1:1".parse().unwrap();
        Arc::new(Connection::unattached(Addresses { client: address, peer: address, local: address }))
    }

    /// `streams` of one connection wait. Every second one of them, in turn or always the first, sends
    /// `bytes_per_second`. Returns after how many seconds one is too slow, up to an hour.
    fn lasts(streams: usize, bytes_per_second: usize, in_turn: bool) -> u64 {
        let (connection, start) = (connection(), Instant::now());
        let mut timers: Vec<(_, Option<Instant>)> =
            (0..streams).map(|_| (ReaderRateTimer::new(&connection), None)).collect();
        for second in 0..3_600 {
            let now = start + Duration::from_secs(second);
            for (timer, until) in &mut timers {
                // Checks again at its deadline.
                while let Some(over) = until.filter(|until| *until <= now) {
                    if timer.wait(over) <= over {
                        return second;
                    }
                    *until = Some(timer.wait(over));
                }
                *until = Some(timer.wait(now));
            }
            let next = if in_turn { usize::try_from(second).unwrap() % streams } else { 0 };
            if bytes_per_second > 0 {
                let (timer, until) = &mut timers[next];
                timer.moved(bytes_per_second, now);
                *until = Some(timer.wait(now));
            }
        }
        3_600
    }

    #[test]
    fn a_waiting_stream_is_not_slow_while_its_connection_moves() {
        // 1.5 Mbit/s.
        assert_eq!(lasts(100, 187_500, true), 3_600);
        assert_eq!(lasts(100, 51_000, true), 3_600, "500 bytes a second for each");
        // A player that pauses beside a download.
        assert_eq!(lasts(2, 2_000, false), 3_600);
    }

    #[test]
    fn a_client_that_reads_nothing_or_too_little_is_too_slow() {
        assert_eq!(lasts(1, 0, false), 60);
        assert_eq!(lasts(100, 0, false), 60);
        assert!(lasts(100, 1_000, false) <= 65, "one stream that reads does not carry a hundred");
        assert!(lasts(100, 1_000, true) <= 65);
        assert!(lasts(1, 400, false) < 400);
    }

    #[test]
    fn a_dropped_stream_is_not_counted_as_waiting() {
        let connection = connection();
        let mut timer = ReaderRateTimer::new(&connection);
        timer.wait(Instant::now());
        assert_eq!(connection.streams().waiting.load(Ordering::Relaxed), 1);
        drop(timer);
        assert_eq!(connection.streams().waiting.load(Ordering::Relaxed), 0);
    }
}
