//! The simulated store: the real bucket, a clock of its own, and data that can be lost.

use std::collections::VecDeque;

use contract::time::UnixMillis;
use contract::window::Window;
use quota::ledger::bucket::{Bucket, BucketView, StoreState};
use quota::ledger::{Incarnation, LEARNING_MILLIS, Reply, Statement};

use super::scenario::{Micros, SECOND};

/// How far back a replica may lag.
const HISTORY: Micros = 2 * SECOND;

/// One store.
pub(super) struct SimStore {
    starts_at: i64,
    clock_off: i64,
    bucket: Option<Bucket>,
    incarnation: u64,
    learning_until: UnixMillis,
    /// The bucket after each write of the last [`HISTORY`], if a scenario needs it.
    remembers: bool,
    writes: VecDeque<(Micros, Option<Bucket>)>,
    pub(super) stalled_until: Micros,
    pub(super) statements: u64,
}

impl SimStore {
    /// An empty store; its clock shows `starts_at` at the beginning.
    pub(super) fn new(starts_at: i64, remembers: bool) -> Self {
        Self {
            starts_at,
            remembers,
            clock_off: 0,
            bucket: None,
            incarnation: 1,
            learning_until: UnixMillis(i64::MIN),
            writes: VecDeque::from([(0, None)]),
            stalled_until: 0,
            statements: 0,
        }
    }

    /// The store's clock.
    pub(super) fn clock(&self, now: Micros) -> UnixMillis {
        UnixMillis(self.starts_at + i64::try_from(now / 1_000).unwrap_or(0) + self.clock_off)
    }

    /// The current incarnation of its data.
    pub(super) fn incarnation(&self) -> Incarnation {
        Incarnation(self.incarnation)
    }

    /// Executes a statement.
    pub(super) fn apply(&mut self, now: Micros, statement: &Statement) -> Reply {
        self.statements += 1;
        let around =
            StoreState { now: self.clock(now), incarnation: self.incarnation(), learning_until: self.learning_until };
        let reply = self.bucket.get_or_insert_with(|| Bucket::new(&around)).apply(statement, &around);
        if self.remembers {
            self.writes.push_back((now, self.bucket.clone()));
        }
        while self.writes.get(1).is_some_and(|(at, _)| at + HISTORY < now) {
            self.writes.pop_front();
        }
        reply
    }

    /// Loses all data.
    pub(super) fn empty(&mut self, now: Micros) {
        self.bucket = None;
        self.begin_life(now, true);
    }

    /// A replica takes over that lacks the last `lost` microseconds. If it knows the bucket, the bucket shows that it
    /// belongs to an earlier incarnation; then the store as a whole sometimes skips the learning period.
    pub(super) fn fail_over(&mut self, now: Micros, lost: Micros, clock_off: i64) {
        let then = now.saturating_sub(lost);
        let copied = self.writes.iter().rev().find(|(at, _)| *at <= then);
        self.bucket = copied.or(self.writes.front()).and_then(|(_, bucket)| bucket.clone());
        self.clock_off = clock_off;
        self.begin_life(now, self.bucket.is_none() || lost.is_multiple_of(2));
    }

    fn begin_life(&mut self, now: Micros, listens: bool) {
        self.incarnation += 1;
        self.learning_until = if listens { self.clock(now).plus(LEARNING_MILLIS) } else { UnixMillis(i64::MIN) };
        self.writes = VecDeque::from([(now, self.bucket.clone())]);
    }

    /// Whether no node has moved the bucket to a minute that has not begun. Lost data may have known one.
    pub(super) fn is_in_its_own_minute(&self, now: Micros) -> Result<(), String> {
        let Some(record) = self.bucket.as_ref().filter(|_| !self.remembers) else { return Ok(()) };
        let (named, now) = (record.minute(), Window::Minute.index(self.clock(now)));
        if named > now { Err(format!("a node has moved the record from minute {now} to {named}")) } else { Ok(()) }
    }

    /// The bucket's record.
    pub(super) fn view(&self, now: Micros) -> Option<BucketView> {
        self.bucket.as_ref().map(|bucket| bucket.view(self.clock(now)))
    }
}
