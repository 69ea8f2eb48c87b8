//! The connection to the store: heartbeats, detection of an outage, of its end and of lost data, and handing back idle
//! units.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use contract::time::UnixMillis;
use futures_util::StreamExt as _;
use futures_util::stream;

use super::breaker::{BreakerChange, PROBE_EVERY};
use super::bucket_cache::CachedBucket;
use super::ledger::node::Purpose;
use super::ledger::{Incarnation, Reply};
use super::store::{Fleet, HeartbeatReply, StoreOutage};
use super::{HEARTBEAT, Inner, Quota};

/// Pause between two counts of the nodes, in milliseconds per node, since each count reads all of them.
const COUNT_MILLIS_PER_NODE: u64 = 10;
/// The longest pause, well below the silence after which a node is no longer counted.
const COUNT_MILLIS_MAX: u64 = 1_000;
/// How long an error that the store returned is shown: longer than the pause between two calls that return it.
const TROUBLE_SHOWN: Duration = Duration::from_millis(2 * COUNT_MILLIS_MAX);
/// Concurrent statements when many buckets need one.
const STATEMENTS_AT_ONCE: usize = 64;
/// The longest time for handing back all units at shutdown. Units not handed back by then stay charged.
const HAND_BACK_BUDGET: Duration = Duration::from_secs(2);

impl Quota {
    /// Keeps the connection to the store; never returns. Run it as a task, and stop the task after
    /// [`Quota::hand_back_all`].
    pub async fn send_heartbeats(&self) {
        let mut beat = tokio::time::interval(HEARTBEAT);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut probed_at: Option<Duration> = None;
        loop {
            beat.tick().await;
            let now = self.0.clock.monotonic();
            let gone = self.0.store_is_gone.load(Ordering::Relaxed);
            let due = probed_at.is_none_or(|at| now.saturating_sub(at) >= PROBE_EVERY);
            if !gone || due {
                probed_at = Some(now);
                self.heartbeat().await;
            }
        }
    }

    /// One round of [`Quota::send_heartbeats`], for callers with their own clock.
    pub async fn heartbeat(&self) {
        let count = self.0.is_time_to_count();
        let heartbeat = tokio::time::timeout(self.0.settings.call_budget, self.0.store.heartbeat(count));
        self.0.receive_heartbeat(&heartbeat.await.unwrap_or(Err(StoreOutage::TimedOut)));
        if !self.0.store_is_gone.load(Ordering::Relaxed) {
            self.0.hand_back_idle();
            self.0.send_strikes();
            self.0.deliver_pending();
        }
    }

    /// Hands back every unit that this node holds. Call it at shutdown, after the last request.
    pub async fn hand_back_all(&self) {
        let all = stream::iter(self.0.cache.all()).for_each_concurrent(STATEMENTS_AT_ONCE, |cached| async move {
            if cached.lock().bucket.owes() {
                self.0.state(&cached, Purpose::HandBack).await;
            }
        });
        if tokio::time::timeout(HAND_BACK_BUDGET, all).await.is_err() {
            tracing::warn!(
                "cannot return all unused units to the quota store in time; they stay charged until their windows end"
            );
        }
    }
}

impl Inner {
    /// The nodes that share the limits during an outage of the store; `None` while unknown.
    pub(super) fn fleet(&self) -> Option<Fleet> {
        self.fleet.lock().known(self.clock.monotonic())
    }

    /// Why the store does not work: while it counts as unavailable, and while it answers calls with errors.
    pub(super) fn trouble(&self) -> Option<StoreOutage> {
        if self.store_is_full.load(Ordering::Relaxed) && !self.store_is_gone.load(Ordering::Relaxed) {
            return Some(StoreOutage::full_memory());
        }
        let (outage, at) = self.outage.lock().clone()?;
        let is_recent = self.clock.monotonic().saturating_sub(at) <= TROUBLE_SHOWN;
        let answers_with_errors = is_recent && matches!(outage, StoreOutage::Refused(_));
        (answers_with_errors || self.store_is_gone.load(Ordering::Relaxed)).then_some(outage)
    }

    /// Whether this node is known to be the only one.
    pub(super) fn is_only_node(&self) -> bool {
        self.fleet().is_some_and(|fleet| fleet.nodes.get() <= 1)
    }

    /// Whether it is time to count the nodes; true once per pause.
    fn is_time_to_count(&self) -> bool {
        let now = u64::try_from(self.clock.monotonic().as_millis()).unwrap_or(u64::MAX);
        let due = now >= self.count_at.load(Ordering::Relaxed);
        if due {
            let nodes = self.fleet().map_or(1, |fleet| fleet.nodes.get());
            let pause = (COUNT_MILLIS_PER_NODE * u64::from(nodes)).min(COUNT_MILLIS_MAX);
            self.count_at.store(now.saturating_add(pause), Ordering::Relaxed);
        }
        due
    }

    /// Updates the state of the store after a call.
    pub(super) fn record(self: &Arc<Self>, answer: &Result<Reply, StoreOutage>) {
        match answer {
            Ok(Reply::Executed(executed)) => {
                self.record_clock(executed.now);
                self.record_life(true);
                self.record_incarnation(executed.incarnation);
            }
            Ok(Reply::Stale | Reply::Displaced | Reply::Evicted | Reply::Crowded) => self.record_life(true),
            Err(outage) if outage.is_of_the_store() => {
                self.record_outage(outage);
                self.record_life(false);
            }
            Err(_) => {}
        }
    }

    fn receive_heartbeat(self: &Arc<Self>, heartbeat: &Result<HeartbeatReply, StoreOutage>) {
        match heartbeat {
            Ok(heartbeat) => {
                self.record_clock(heartbeat.now);
                if let Some(fleet) = heartbeat.fleet {
                    self.fleet.lock().count(fleet);
                }
                if let Some(full) = heartbeat.full {
                    self.record_memory(full);
                }
                self.record_life(true);
                self.record_incarnation(heartbeat.incarnation);
            }
            Err(outage) => {
                self.record_outage(outage);
                self.record_life(!outage.is_of_the_store());
            }
        }
    }

    /// Records why the store failed, for operators.
    pub(super) fn record_outage(&self, outage: &StoreOutage) {
        *self.outage.lock() = Some((outage.clone(), self.clock.monotonic()));
    }

    /// Records whether the store's memory is full.
    fn record_memory(&self, full: bool) {
        if self.store_is_full.swap(full, Ordering::Relaxed) == full {
            return;
        }
        if full {
            let outage = StoreOutage::full_memory();
            tracing::warn!(
                reason = %outage,
                what_to_do = outage.remedy(),
                "the quota store is full; counting goes on, but bans may not reach the other gateways"
            );
        } else {
            tracing::info!("the quota store has memory again");
        }
    }

    fn record_clock(&self, now: UnixMillis) {
        if self.store.has_own_clock() {
            self.store_clock.receive(now, self.clock.monotonic());
        }
    }

    fn record_life(self: &Arc<Self>, alive: bool) {
        if alive && !self.store_fails.load(Ordering::Relaxed) {
            return;
        }
        let change = {
            let mut breaker = self.breaker.lock();
            let change = breaker.record(alive);
            self.store_fails.store(!alive, Ordering::Relaxed);
            self.store_is_gone.store(breaker.is_open(), Ordering::Relaxed);
            change
        };
        match change {
            BreakerChange::None => {}
            BreakerChange::Opened => {
                let outage = self.outage.lock().as_ref().map(|(outage, _)| outage.clone());
                let outage = outage.unwrap_or(StoreOutage::TimedOut);
                tracing::warn!(
                    mode = self.settings.on_store_down.as_str(),
                    reason = %outage,
                    what_to_do = outage.remedy(),
                    "lost the quota store"
                );
            }
            BreakerChange::Closed => {
                tracing::info!("reconnected to the quota store");
                self.assert_all(false);
            }
        }
    }

    fn record_incarnation(self: &Arc<Self>, incarnation: Incarnation) {
        if self.incarnation.load(Ordering::Relaxed) == incarnation.0 && self.store_was_reached.load(Ordering::Relaxed) {
            return;
        }
        let before = self.incarnation.swap(incarnation.0, Ordering::AcqRel);
        if self.store_was_reached.swap(true, Ordering::AcqRel) && before != incarnation.0 {
            tracing::warn!("the quota store lost its data; restoring counters and bans");
            self.assert_all(true);
            self.repeat_bans();
        }
    }

    /// Repeats this node's statements to the store, bucket by bucket; all of them if it lost its data (`forgot`).
    fn assert_all(self: &Arc<Self>, forgot: bool) {
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let now = inner.clock.monotonic();
            let cache = inner.cache.all().into_iter().filter(|cached| {
                let mut state = cached.lock();
                if forgot {
                    state.bucket.store_forgot(now);
                } else {
                    state.bucket.demand_assert(now);
                }
                // If a statement is pending, its end repeats what is necessary.
                state.bucket.wants_assert()
            });
            stream::iter(cache)
                .for_each_concurrent(STATEMENTS_AT_ONCE, |cached| {
                    let inner = Arc::clone(&inner);
                    async move { inner.state(&cached, Purpose::Assert).await }
                })
                .await;
        });
    }

    pub(super) fn hand_back_idle(self: &Arc<Self>) {
        let now = self.clock.monotonic();
        self.cache.sweep(|cached| {
            let (owes, idle) = {
                let state = cached.lock();
                (state.bucket.owes(), state.bucket.wants_hand_back(now))
            };
            if idle {
                self.state_in_background(cached, Purpose::HandBack);
            }
            owes
        });
    }

    /// Sends a statement and reads the answer.
    async fn state(self: &Arc<Self>, cached: &Arc<CachedBucket>, purpose: Purpose) {
        let statement = cached.lock().bucket.ask(self.clock.monotonic(), purpose);
        if let Some(statement) = statement {
            let answer = self.send(cached, statement).await;
            self.finish(cached, statement.seq, &answer, false);
        }
    }
}
