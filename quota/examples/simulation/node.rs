//! A simulated gateway node: the real bucket, and around it the gateway's behaviour: one statement at a time, a budget
//! per call, a circuit breaker, a heartbeat.

use std::time::Duration;

use contract::plan::Limits;
use contract::time::UnixMillis;
use quota::clock::ForeignClock;
use quota::ledger::node::{DegradedClock, DegradedPolicy, DegradedStep, NodeBucket, Purpose, Share, Step};
use quota::ledger::{Generation, Incarnation, NodeId, Reply, Statement};

use super::scenario::Micros;

/// Failures in a row after which the node stops asking the store.
const FAILURES_MAX: u32 = 3;

/// The result of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// The ledger decided to admit or refuse.
    Decided(Step),
    /// The node decided without the store; by its own clock if it has never received the store's.
    Degraded(DegradedStep, bool),
    /// 503.
    Unavailable,
    /// With a fast clock and without the store, the node had entered a minute before the store did, and returned.
    WentBack,
}

/// One process.
pub(super) struct SimNode {
    /// Distinguishes successive processes of one place.
    pub(super) process: u64,
    pub(super) bucket: NodeBucket,
    waiting: u32,
    failures: u32,
    incarnation: Option<Incarnation>,
    /// Offset of its monotonic clock.
    clock_off: Duration,
    /// By how many millionths its monotonic clock is fast.
    clock_fast: i64,
    /// Error of its wall clock.
    wall_off: i64,
    share: Option<Share>,
    /// The store's clock.
    store_clock: ForeignClock,
    pub(super) fates: Vec<Fate>,
}

impl SimNode {
    /// A fresh process. With a share it admits that share during an outage; without one it denies everything.
    pub(super) fn new(place: usize, process: u64, limits: Limits, share: Option<Share>) -> Self {
        let number = u32::try_from(process).unwrap_or(u32::MAX);
        let me = NodeId { place: place as u64, generation: Generation { start: number, stay: 0, process: number } };
        Self {
            process,
            bucket: NodeBucket::new(me, limits),
            waiting: 0,
            failures: 0,
            incarnation: None,
            clock_off: Duration::from_secs(process * 1_000),
            clock_fast: i64::try_from(process % 5).unwrap_or(0) * 50 - 100,
            wall_off: i64::try_from(process % 7).unwrap_or(0) * 30_000 - 90_000,
            share,
            store_clock: ForeignClock::default(),
            fates: Vec::new(),
        }
    }

    fn clock(&self, now: Micros) -> Duration {
        let drift = i64::try_from(now).unwrap_or(0) * self.clock_fast / 1_000_000;
        self.clock_off + Duration::from_micros(now.saturating_add_signed(drift))
    }

    /// Its wall clock jumps by `millis`.
    pub(super) fn step(&mut self, millis: i64) {
        self.wall_off += millis;
    }

    /// A request arrives. Returns the statement to send, if one is due.
    pub(super) fn request(&mut self, now: Micros, wall: i64, limits: Limits) -> Option<Statement> {
        let clock = self.clock(now);
        let step = self.bucket.spend(clock, limits);
        if step != Step::Ask {
            self.fates.push(Fate::Decided(step));
            let prefetch = matches!(step, Step::Admit(_)) && self.bucket.wants_prefetch(clock) && !self.store_is_gone();
            return if prefetch { self.bucket.ask(clock, Purpose::Prefetch) } else { None };
        }
        if self.store_is_gone() {
            self.decide_degraded(now, wall);
            return None;
        }
        self.waiting += 1;
        self.ask(now)
    }

    /// The next statement for waiting requests.
    pub(super) fn ask(&mut self, now: Micros) -> Option<Statement> {
        let clock = self.clock(now);
        if self.waiting == 0 || clock < self.bucket.quiet_until() {
            return None;
        }
        self.bucket.ask(clock, Purpose::Spend(self.waiting))
    }

    /// When waiting requests should ask again, because the store grants nothing until then.
    pub(super) fn quiet_until(&self, now: Micros) -> Option<Micros> {
        let quiet = self.bucket.quiet_until().saturating_sub(self.clock(now));
        let micros = u64::try_from(quiet.as_micros()).unwrap_or(0);
        (self.waiting > 0 && micros > 0).then(|| now + micros)
    }

    /// The reply to a statement arrives, perhaps long after it was abandoned.
    pub(super) fn receive(&mut self, now: Micros, seq: u64, reply: &Reply) -> Option<Statement> {
        let clock = self.clock(now);
        match reply {
            Reply::Executed(executed) => {
                let before = self.bucket.claim();
                if !self.bucket.receive(clock, seq, executed) {
                    return None;
                }
                // Until the store has named a minute, a degraded node uses its own clock.
                if before.named == i64::MIN || self.bucket.claim().minute < before.minute {
                    self.fates.push(Fate::WentBack);
                }
                self.failures = 0;
                self.record_incarnation(now, executed.incarnation);
            }
            Reply::Stale => {
                self.bucket.abandon(seq);
            }
            Reply::Evicted | Reply::Displaced => {
                let mut me = self.bucket.me();
                me.generation.stay += 1;
                me.place += if *reply == Reply::Displaced { 1_000_000 } else { 0 };
                self.bucket.begin_anew(seq, me);
            }
            Reply::Crowded => {
                self.bucket.was_not_executed(seq);
                self.fates.extend((0..std::mem::take(&mut self.waiting)).map(|_| Fate::Unavailable));
            }
        }
        while self.waiting > 0 {
            let step = self.bucket.serve(clock);
            if step == Step::Ask {
                break;
            }
            self.waiting -= 1;
            self.fates.push(Fate::Decided(step));
        }
        self.bucket.keep_rest();
        self.ask(now).or_else(|| self.repeat(now))
    }

    /// The budget of a statement has run out.
    pub(super) fn time_out(&mut self, now: Micros, wall: i64, seq: u64) -> Option<Statement> {
        if !self.bucket.abandon(seq) {
            return None;
        }
        self.fail();
        while self.waiting > 0 {
            self.waiting -= 1;
            self.decide_degraded(now, wall);
        }
        self.repeat(now)
    }

    /// Receives the reply to a heartbeat.
    pub(super) fn receive_heartbeat(
        &mut self,
        now: Micros,
        (incarnation, clock): (Incarnation, UnixMillis),
    ) -> Option<Statement> {
        self.store_clock.receive(clock, self.clock(now));
        let was_gone = self.store_is_gone();
        self.failures = 0;
        if was_gone {
            self.bucket.demand_assert(self.clock(now));
        }
        self.record_incarnation(now, incarnation);
        self.repeat(now).or_else(|| self.ask(now))
    }

    /// A heartbeat was not answered in time.
    pub(super) fn fail(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// The statement of an idle node, sent with each heartbeat.
    pub(super) fn hand_back(&mut self, now: Micros) -> Option<Statement> {
        let clock = self.clock(now);
        let due = !self.store_is_gone() && self.bucket.wants_hand_back(clock);
        if due { self.bucket.ask(clock, Purpose::HandBack) } else { None }
    }

    /// Another node asks for the units that this one holds.
    pub(super) fn recalled(&mut self, now: Micros) -> Option<Statement> {
        let due = !self.store_is_gone() && self.bucket.owes();
        if due { self.bucket.ask(self.clock(now), Purpose::HandBack) } else { None }
    }

    /// Whether the node considers the store unavailable.
    pub(super) fn store_is_gone(&self) -> bool {
        self.failures >= FAILURES_MAX
    }

    fn record_incarnation(&mut self, now: Micros, incarnation: Incarnation) {
        if self.incarnation.replace(incarnation).is_some_and(|before| before != incarnation) {
            self.bucket.store_forgot(self.clock(now));
        }
    }

    fn repeat(&mut self, now: Micros) -> Option<Statement> {
        let due = self.bucket.wants_assert() && !self.store_is_gone();
        if due { self.bucket.ask(self.clock(now), Purpose::Assert) } else { None }
    }

    fn decide_degraded(&mut self, now: Micros, wall: i64) {
        let clock = self.clock(now);
        self.fates.push(match self.share {
            Some(share) => {
                let store = self.store_clock.now(clock);
                let time = store.map_or(DegradedClock::Own(UnixMillis(wall + self.wall_off)), DegradedClock::Received);
                Fate::Degraded(self.bucket.spend_degraded(clock, time, DegradedPolicy::Share(share)), store.is_none())
            }
            None => Fate::Unavailable,
        });
    }
}
