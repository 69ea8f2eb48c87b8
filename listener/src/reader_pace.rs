//! How slowly the client of an HTTP/2 connection may read.
//!
//! The minimum rate of a reader belongs to its connection, as with HTTP/1, and not to a stream: a hundred images over a thin
//! line come one after the other, and those that wait their turn are not slow. So every byte that any stream hands on counts
//! for all that wait, in equal parts: a client that keeps a hundred streams waiting has to read a hundred times as much.
//!
//! Pure: moments are arguments.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::connection::Connection;
use crate::pace::Pace;

/// How slowly the response of one stream may be taken.
#[derive(Debug)]
pub struct ReaderPace {
    connection: Arc<Connection>,
    pace: Pace,
    /// What was earned on the connection when it was last looked at.
    seen: u64,
    /// It is one of those that wait.
    waits: bool,
}

impl ReaderPace {
    /// For a stream of this connection, from now on.
    pub fn new(connection: &Arc<Connection>) -> Self {
        let pace = Pace::new(connection.write_pace());
        Self { connection: Arc::clone(connection), pace, seen: 0, waits: false }
    }

    /// We wait for the client. Says until when.
    pub fn wait(&mut self, now: Instant) -> Instant {
        let streams = self.connection.streams();
        let earned = streams.earned.load(Ordering::Relaxed);
        if !std::mem::replace(&mut self.waits, true) {
            streams.waiting.fetch_add(1, Ordering::Relaxed);
        } else if earned != self.seen {
            self.pace.earned(Duration::from_micros(earned.wrapping_sub(self.seen)), now);
        }
        self.seen = earned;
        self.pace.wait(now)
    }

    /// The client takes so many bytes.
    pub fn moved(&mut self, bytes: usize, now: Instant) {
        let streams = self.connection.streams();
        let waiting = streams.waiting.load(Ordering::Relaxed).max(1);
        let rate = u64::from(self.connection.write_pace().bytes_per_second.max(1)) * u64::from(waiting);
        let share = (bytes as u64).saturating_mul(1_000_000) / rate;
        let earned = streams.earned.fetch_add(share, Ordering::Relaxed).wrapping_add(share);
        if self.waits {
            self.pace.earned(Duration::from_micros(earned.wrapping_sub(self.seen)), now);
            self.rests();
        } else {
            self.pace.earned(Duration::from_micros(share), now);
        }
    }

    fn rests(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.connection.streams().waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for ReaderPace {
    fn drop(&mut self) {
        self.rests();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ends;

    fn connection() -> Arc<Connection> {
        let address = "192.0.2.1:1".parse().unwrap();
        Arc::new(Connection::unattached(Ends { client: address, peer: address, local: address }))
    }

    /// `streams` of one connection wait, and every second one of them, the next each time, hands on so many bytes; after how
    /// many seconds the first is too slow, up to an hour.
    fn lasts(streams: usize, bytes_per_second: usize, in_turn: bool) -> u64 {
        let (connection, start) = (connection(), Instant::now());
        let mut paces: Vec<(_, Option<Instant>)> = (0..streams).map(|_| (ReaderPace::new(&connection), None)).collect();
        for second in 0..3_600 {
            let now = start + Duration::from_secs(second);
            for (pace, until) in &mut paces {
                // It is looked at again when its time is over.
                while let Some(over) = until.filter(|until| *until <= now) {
                    if pace.wait(over) <= over {
                        return second;
                    }
                    *until = Some(pace.wait(over));
                }
                *until = Some(pace.wait(now));
            }
            let next = if in_turn { usize::try_from(second).unwrap() % streams } else { 0 };
            if bytes_per_second > 0 {
                let (pace, until) = &mut paces[next];
                pace.moved(bytes_per_second, now);
                *until = Some(pace.wait(now));
            }
        }
        3_600
    }

    #[test]
    fn who_waits_for_its_turn_is_not_slow_while_its_connection_moves() {
        // 1.5 Mbit/s.
        assert_eq!(lasts(100, 187_500, true), 3_600);
        assert_eq!(lasts(100, 51_000, true), 3_600, "500 bytes a second for each");
        // A player that pauses beside a download.
        assert_eq!(lasts(2, 2_000, false), 3_600);
    }

    #[test]
    fn who_reads_nothing_or_next_to_nothing_is_too_slow() {
        assert_eq!(lasts(1, 0, false), 60);
        assert_eq!(lasts(100, 0, false), 60);
        assert!(lasts(100, 1_000, false) <= 65, "one stream that reads does not carry a hundred");
        assert!(lasts(100, 1_000, true) <= 65);
        assert!(lasts(1, 400, false) < 400);
    }

    #[test]
    fn who_has_left_waits_no_more() {
        let connection = connection();
        let mut pace = ReaderPace::new(&connection);
        pace.wait(Instant::now());
        assert_eq!(connection.streams().waiting.load(Ordering::Relaxed), 1);
        drop(pace);
        assert_eq!(connection.streams().waiting.load(Ordering::Relaxed), 0);
    }
}
