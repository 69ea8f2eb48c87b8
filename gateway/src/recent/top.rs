//! The busiest names of the last minutes, and the results of their requests.
//!
//! Names are counted with the "Space-Saving" algorithm: in a bounded table a new name replaces the rarest one and
//! inherits its count. A name with more than one in [`NAMES_MAX`] of a minute's requests is therefore always in the
//! table; `uncertain` is the largest possible error of a row. Tables are split by name, so that requests of different
//! names do not block each other.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

use contract::rejection::Blame;

/// Number of minutes kept, including the current one.
pub(crate) const MINUTES: u64 = 5;

/// One table per minute.
const TABLES: usize = 5;

/// Tables per minute and key.
const SHARDS: usize = 8;

/// Names per table; eight tables per minute and key, at about 200 bytes a name.
pub(crate) const NAMES_MAX: usize = 64;

contract::words! {
    /// The key by which requests are counted.
    pub enum By {
        /// The paying project.
        Project = "project",
        /// The host.
        Host = "host",
        /// The API key.
        Key = "key",
        /// The result: the code of a refusal, or the class of status.
        Code = "code",
    }
}

/// The code of a response that is not a refusal of the gateway.
pub(super) const fn outcome(status: u16) -> &'static str {
    match status {
        0 => "client_left",
        100..=199 => "upgraded",
        200..=299 => "ok",
        300..=399 => "redirected",
        400..=499 => "service_said_4xx",
        _ => "service_said_5xx",
    }
}

/// The result of one request.
pub(super) struct Ended {
    /// Who must act, if the gateway refused.
    pub(super) blame: Option<Blame>,
    /// The status sent, 0 for none.
    pub(super) status: u16,
    /// From the first byte to the end.
    pub(super) took: Duration,
}

impl Ended {
    /// Whether an operator may look up the request.
    pub(super) const fn is_trouble(&self) -> bool {
        self.status >= 400 || self.status == 0
    }
}

/// The counts of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    /// Requests.
    pub requests: u64,
    /// The largest number of them that may belong to other names.
    pub uncertain: u64,
    /// Refused, and the client must act.
    pub client: u64,
    /// Refused, and the owner of the project must act.
    pub customer: u64,
    /// Refused, and we must act.
    pub platform: u64,
    /// The upstream failed: unreachable, too slow, or answered 5xx.
    pub upstream: u64,
    /// Microseconds from the first byte to the end, summed.
    pub micros: u64,
}

impl Row {
    fn add(&mut self, ended: &Ended) {
        self.requests += 1;
        self.micros = self.micros.saturating_add(u64::try_from(ended.took.as_micros()).unwrap_or(u64::MAX));
        match ended.blame {
            Some(Blame::Client) => self.client += 1,
            Some(Blame::Customer) => self.customer += 1,
            Some(Blame::Platform) => self.platform += 1,
            Some(Blame::Upstream) => self.upstream += 1,
            None => self.upstream += u64::from(ended.status >= 500),
        }
    }

    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.uncertain += other.uncertain;
        self.client += other.client;
        self.customer += other.customer;
        self.platform += other.platform;
        self.upstream += other.upstream;
        self.micros = self.micros.saturating_add(other.micros);
    }
}

/// One table of one minute.
#[derive(Default)]
struct Table {
    minute: u64,
    rows: HashMap<Box<str>, Row>,
}

impl Table {
    fn count(&mut self, name: &str, ended: &Ended) {
        if let Some(row) = self.rows.get_mut(name) {
            row.add(ended);
            return;
        }
        let mut row = Row::default();
        if self.rows.len() >= NAMES_MAX {
            let rarest = self.rows.iter().min_by_key(|(_, row)| row.requests).map(|(name, row)| (name.clone(), *row));
            if let Some((rarest, seen)) = rarest {
                self.rows.remove(&rarest);
                row = Row { requests: seen.requests, uncertain: seen.requests, ..Row::default() };
            }
        }
        row.add(ended);
        self.rows.insert(name.into(), row);
    }
}

/// All minutes of one part of the names.
type Shard = Mutex<[Table; TABLES]>;

/// Requests of the last minutes by project, host, key and code.
pub(crate) struct Top {
    hasher: std::hash::RandomState,
    shards: [[Shard; SHARDS]; By::ALL.len()],
}

impl Default for Top {
    fn default() -> Self {
        Self { hasher: std::hash::RandomState::new(), shards: Default::default() }
    }
}

impl Top {
    /// Counts a request; `now` is monotonic.
    pub(super) fn count(&self, by: By, name: &str, ended: &Ended, now: Duration) {
        let minute = minute_of(now);
        let place = usize::try_from(self.hasher.hash_one(name)).unwrap_or(usize::MAX >> 1) % SHARDS;
        let Some(shard) = self.shards(by).get(place) else { return };
        let mut tables = shard.lock();
        let Some(table) = tables.get_mut(usize::try_from(minute % MINUTES).unwrap_or(0)) else { return };
        if table.minute != minute {
            *table = Table { minute, rows: HashMap::new() };
        }
        table.count(name, ended);
    }

    /// The busiest names of the last `minutes` (at most [`MINUTES`]), including the current one; at most `limit` rows.
    pub(crate) fn busiest(&self, by: By, minutes: u64, limit: usize, now: Duration) -> Vec<(Box<str>, Row)> {
        let current = minute_of(now);
        let oldest = current.saturating_sub(minutes.clamp(1, MINUTES) - 1);
        let mut all: HashMap<Box<str>, Row> = HashMap::new();
        for shard in self.shards(by) {
            for table in shard.lock().iter().filter(|table| (oldest..=current).contains(&table.minute)) {
                for (name, row) in &table.rows {
                    all.entry(name.clone()).or_default().merge(row);
                }
            }
        }
        let mut rows: Vec<_> = all.into_iter().collect();
        rows.sort_by(|(left, a), (right, b)| b.requests.cmp(&a.requests).then_with(|| left.cmp(right)));
        rows.truncate(limit);
        rows
    }

    fn shards(&self, by: By) -> &[Shard] {
        let index = By::ALL.iter().position(|one| *one == by).unwrap_or(0);
        self.shards.get(index).map_or(&[], |shards| shards.as_slice())
    }
}

/// The minute of a monotonic time, from 1: a table of minute 0 was never used.
const fn minute_of(now: Duration) -> u64 {
    now.as_secs() / 60 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: Ended = Ended { blame: None, status: 200, took: Duration::from_micros(100) };

    #[test]
    fn rows_have_the_caller_and_the_result() {
        let top = Top::default();
        let now = Duration::from_mins(1);
        let refused = |blame| Ended { blame: Some(blame), status: 503, took: Duration::ZERO };
        top.count(By::Project, "a", &OK, now);
        top.count(By::Project, "a", &refused(Blame::Platform), now);
        top.count(By::Project, "a", &refused(Blame::Upstream), now);
        top.count(By::Project, "a", &Ended { blame: None, status: 500, took: Duration::ZERO }, now);
        top.count(By::Project, "b", &refused(Blame::Client), now);
        let rows = top.busiest(By::Project, 1, 10, now);
        let names: Vec<&str> = rows.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["a", "b"]);
        let expected = Row { requests: 4, platform: 1, upstream: 2, micros: 100, ..Row::default() };
        assert_eq!(rows[0].1, expected);
        assert!(top.busiest(By::Host, 1, 10, now).is_empty());
    }

    #[test]
    fn old_minutes_are_dropped() {
        let top = Top::default();
        let at = |minute: u64| Duration::from_mins(minute);
        for minute in 0..3 {
            top.count(By::Host, "a", &OK, at(minute));
        }
        let seen = |minutes, now| top.busiest(By::Host, minutes, 1, now).first().map_or(0, |(_, row)| row.requests);
        assert_eq!((seen(1, at(2)), seen(2, at(2)), seen(5, at(2)), seen(99, at(2))), (1, 2, 3, 3));
        assert_eq!(seen(5, at(5)), 2, "the first of six minutes is out of sight");
        assert_eq!(seen(5, at(9)), 0);
    }

    #[test]
    fn a_frequent_name_stays_in_the_bounded_table_despite_many_other_names() {
        let top = Top::default();
        for round in 0..20_000_u32 {
            top.count(By::Host, &format!("stranger-{round}"), &OK, Duration::ZERO);
            if round % 100 == 0 {
                top.count(By::Host, "heavy", &OK, Duration::ZERO);
            }
        }
        let rows = top.busiest(By::Host, 1, usize::MAX, Duration::ZERO);
        assert!(rows.len() <= SHARDS * NAMES_MAX);
        let (_, heavy) = rows.iter().find(|(name, _)| &**name == "heavy").expect("1 % of the requests is heavy");
        assert!(heavy.requests >= 200 && heavy.requests - heavy.uncertain <= 200, "{heavy:?}");
    }
}
