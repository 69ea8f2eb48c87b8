//! Charges one request: from memory if possible, otherwise by one call that all waiting requests of the bucket share.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use contract::key::KeyId;
use contract::plan::Limits;
use contract::project::ProjectUid;
use contract::time::UnixMillis;
use contract::window::Window;
use tokio::sync::oneshot;

use super::allowance::{Allowances, seconds_until};
use super::ban::Notification;
use super::bucket_cache::{CachedBucket, CachedState, WaitResult};
use super::ledger::node::{DegradedClock, DegradedPolicy, DegradedStep, Purpose, Step};
use super::ledger::{Reply, Statement};
use super::settings::OnStoreDown;
use super::store::StoreOutage;
use super::{ChargeError, Inner, Quota};

/// The longest wait of any request for the store: five calls of the usual budget, the half second in which a new store
/// only learns, and the time in which other nodes hand back their units, rounded up. Only the first requests of a fault
/// come near it.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A call to the store, including its budget.
type Call = Pin<Box<dyn Future<Output = Result<Reply, StoreOutage>> + Send>>;

impl Quota {
    /// Charges one request of `key` to its project's minute and day, or to neither. A refusal may count as a strike.
    pub async fn charge(&self, project: &ProjectUid, limits: Limits, key: &KeyId) -> Result<Allowances, ChargeError> {
        let arrived = self.0.clock.monotonic();
        let outcome = self.try_charge(project, limits, key).await;
        if let Err(ChargeError::Exceeded { allowances, window }) = outcome {
            self.0.strike(key, window, limits, &allowances, arrived);
        }
        outcome
    }

    /// Charges one request; a refusal never counts as a strike.
    pub async fn try_charge(
        &self,
        project: &ProjectUid,
        limits: Limits,
        key: &KeyId,
    ) -> Result<Allowances, ChargeError> {
        let inner = &self.0;
        let arrived = inner.clock.monotonic();
        let Some(cached) = inner.cache.get(project, limits, arrived) else {
            return Err(unavailable(self.allowances(project, limits)));
        };
        let banned_until = inner.bans.holds(key, || cached.lock().bucket.peek(arrived, inner.clock.now()).as_of);
        if let Some(until) = banned_until {
            let allowances = cached.lock().bucket.peek(arrived, inner.clock.now());
            return Err(ChargeError::Banned { until, allowances });
        }
        let (step, prefetch) = {
            let mut state = cached.lock();
            let step = state.bucket.spend(arrived, limits);
            (step, matches!(step, Step::Admit(_)) && state.bucket.wants_prefetch(arrived))
        };
        if prefetch {
            inner.state_in_background(&cached, Purpose::Prefetch);
        }
        let served = if step == Step::Ask { inner.ask(&cached).await } else { WaitResult::Step(step) };
        match served {
            WaitResult::Step(Step::Admit(allowances)) => Ok(allowances),
            WaitResult::Step(Step::Refuse(allowances, window)) => Err(ChargeError::Exceeded { allowances, window }),
            WaitResult::Outage => inner.decide_degraded(&cached),
            WaitResult::Step(Step::Ask) | WaitResult::Busy => {
                Err(unavailable(cached.lock().bucket.peek(arrived, inner.clock.now())))
            }
        }
    }
}

impl Inner {
    /// Waits for the store's decision about one request. A call that completes at once, as with the embedded store,
    /// runs here; any other runs in its own task, so that it completes even if this client disconnects.
    async fn ask(self: &Arc<Self>, cached: &Arc<CachedBucket>) -> WaitResult {
        if self.store_is_gone.load(Ordering::Relaxed) {
            return WaitResult::Outage;
        }
        let now = self.clock.monotonic();
        let (statement, receiver) = {
            let mut state = cached.lock();
            let quiet = now < state.bucket.quiet_until();
            let waiting = u32::try_from(state.waiting.len()).unwrap_or(u32::MAX).saturating_add(1);
            match if quiet || state.driven { None } else { state.bucket.ask(now, Purpose::Spend(waiting)) } {
                Some(statement) => (Some(statement), None),
                None if state.waiting.len() >= self.settings.waiting_max => return WaitResult::Busy,
                None => {
                    let (sender, receiver) = oneshot::channel();
                    state.waiting.push_back(sender);
                    if quiet {
                        self.drive(cached, &mut state);
                    }
                    (None, Some(receiver))
                }
            }
        };
        let receiver = match (statement, receiver) {
            (Some(statement), _) => {
                let mut pending = self.send(cached, statement);
                match futures_util::poll!(&mut pending) {
                    Poll::Ready(answer) => match self.finish(cached, statement.seq, &answer, true) {
                        Some(served) => return served,
                        None => self.wait_in_front(cached, None),
                    },
                    Poll::Pending => self.wait_in_front(cached, Some((statement.seq, pending))),
                }
            }
            (None, Some(receiver)) => receiver,
            (None, None) => return WaitResult::Busy,
        };
        match tokio::time::timeout(WAIT_MAX, receiver).await {
            Ok(Ok(served)) => served,
            Ok(Err(_)) | Err(_) => WaitResult::Busy,
        }
    }

    /// Queues the caller before the requests that arrived during its call, and leaves the work to a task.
    fn wait_in_front(
        self: &Arc<Self>,
        cached: &Arc<CachedBucket>,
        under_way: Option<(u64, Call)>,
    ) -> oneshot::Receiver<WaitResult> {
        let (sender, receiver) = oneshot::channel();
        let mut state = cached.lock();
        state.waiting.push_front(sender);
        match under_way {
            Some((seq, pending)) => {
                let (inner, cached) = (Arc::clone(self), Arc::clone(cached));
                tokio::spawn(async move {
                    let answer = pending.await;
                    inner.finish(&cached, seq, &answer, false);
                });
            }
            None => self.drive(cached, &mut state),
        }
        receiver
    }

    /// Ensures that a task serves the waiting requests.
    fn drive(self: &Arc<Self>, cached: &Arc<CachedBucket>, state: &mut CachedState) {
        if !std::mem::replace(&mut state.driven, true) {
            let (inner, cached) = (Arc::clone(self), Arc::clone(cached));
            tokio::spawn(async move { inner.serve_waiting(&cached).await });
        }
    }

    /// Asks until no request waits. This takes only a few rounds: every call grants, refuses, fails, or says how long
    /// the store only learns.
    async fn serve_waiting(self: &Arc<Self>, cached: &Arc<CachedBucket>) {
        loop {
            let quiet = cached.lock().bucket.quiet_until().saturating_sub(self.clock.monotonic());
            if !quiet.is_zero() {
                tokio::time::sleep(quiet).await;
            }
            let statement = {
                let mut state = cached.lock();
                let waiting = u32::try_from(state.waiting.len()).unwrap_or(u32::MAX);
                let statement = match waiting {
                    0 => None,
                    waiting => state.bucket.ask(self.clock.monotonic(), Purpose::Spend(waiting)),
                };
                // No request waits, or a pending call will serve them when it ends.
                state.driven = statement.is_some();
                statement
            };
            let Some(statement) = statement else { return };
            let answer = self.send(cached, statement).await;
            self.finish(cached, statement.seq, &answer, false);
        }
    }

    /// Sends a statement in the background.
    pub(super) fn state_in_background(self: &Arc<Self>, cached: &Arc<CachedBucket>, purpose: Purpose) {
        let (inner, cached) = (Arc::clone(self), Arc::clone(cached));
        if self.store_is_gone.load(Ordering::Relaxed) {
            return;
        }
        let Some(statement) = cached.lock().bucket.ask(self.clock.monotonic(), purpose) else { return };
        tokio::spawn(async move {
            let answer = inner.send(&cached, statement).await;
            inner.finish(&cached, statement.seq, &answer, false);
        });
    }

    /// One call within its budget.
    pub(super) fn send(self: &Arc<Self>, cached: &Arc<CachedBucket>, statement: Statement) -> Call {
        let (inner, cached) = (Arc::clone(self), Arc::clone(cached));
        Box::pin(async move {
            let executing = inner.store.execute(&cached.project, statement);
            tokio::time::timeout(inner.settings.call_budget, executing).await.unwrap_or(Err(StoreOutage::TimedOut))
        })
    }

    /// Reads the reply to a statement and serves the waiting requests in order. With `first`, the caller is served
    /// before them, and its result returned; `None` means that it has to ask again.
    pub(super) fn finish(
        self: &Arc<Self>,
        cached: &Arc<CachedBucket>,
        seq: u64,
        answer: &Result<Reply, StoreOutage>,
        first: bool,
    ) -> Option<WaitResult> {
        self.record(answer);
        let now = self.clock.monotonic();
        let mut state = cached.lock();
        match answer {
            Ok(Reply::Executed(executed)) => {
                state.bucket.receive(now, seq, executed);
                if state.bucket.take_recall() {
                    self.notify(Notification::Recall(cached.project.clone()));
                }
            }
            Ok(Reply::Stale) => {
                state.bucket.abandon(seq);
            }
            Ok(Reply::Displaced) => {
                let me = self.cache.leave_place(state.bucket.me(), self.settings.process);
                state.bucket.begin_anew(seq, me);
            }
            Ok(Reply::Evicted) => {
                let me = self.cache.begin_life();
                state.bucket.begin_anew(seq, me);
            }
            Ok(Reply::Crowded) => {
                state.bucket.was_not_executed(seq);
                state.answer_all(WaitResult::Busy);
                return first.then_some(WaitResult::Busy);
            }
            Err(_) => {
                state.bucket.abandon(seq);
                state.answer_all(WaitResult::Outage);
                let repeat = state.bucket.wants_assert();
                drop(state);
                // The effect of the statement is unknown: another statement will correct it.
                self.cache.watch(cached);
                if repeat {
                    self.state_in_background(cached, Purpose::Assert);
                }
                return first.then_some(WaitResult::Outage);
            }
        }
        let mine = if first { state.bucket.serve(now) } else { Step::Ask };
        let still_waits = first && mine == Step::Ask;
        while !still_waits && let Some(waiting) = state.waiting.pop_front() {
            if waiting.is_closed() {
                continue;
            }
            let step = state.bucket.serve(now);
            if step == Step::Ask {
                state.waiting.push_front(waiting);
                break;
            }
            if let (Err(WaitResult::Step(_)), Step::Admit(allowances)) = (waiting.send(WaitResult::Step(step)), step) {
                state.bucket.refund(now, &allowances);
            }
        }
        state.bucket.keep_rest();
        if !state.waiting.is_empty() {
            self.drive(cached, &mut state);
        }
        let (owes, repeat) = (state.bucket.owes(), !state.driven && state.bucket.wants_assert());
        drop(state);
        if owes {
            self.cache.watch(cached);
        }
        if repeat {
            self.state_in_background(cached, Purpose::Assert);
        }
        (mine != Step::Ask).then_some(WaitResult::Step(mine))
    }

    /// Decides without the store, as the operator configured.
    fn decide_degraded(&self, cached: &Arc<CachedBucket>) -> Result<Allowances, ChargeError> {
        let (now, wall) = (self.clock.monotonic(), self.clock.now());
        let how = match self.settings.on_store_down {
            OnStoreDown::Share => self.fleet().map(|fleet| DegradedPolicy::Share(fleet.share_of(&cached.project))),
            OnStoreDown::Allow => Some(DegradedPolicy::Everything),
            OnStoreDown::Deny => None,
        };
        let Some(how) = how else { return Err(unavailable(cached.lock().bucket.peek(now, wall))) };
        let clock = match self.store_now() {
            Some(clock) => DegradedClock::Received(clock),
            None => DegradedClock::Own(wall),
        };
        let mut state = cached.lock();
        let step = state.bucket.spend_degraded(now, clock, how);
        let allowances = state.bucket.peek(now, wall);
        drop(state);
        match step {
            DegradedStep::Admit(allowances) => {
                self.cache.watch(cached);
                Ok(allowances)
            }
            DegradedStep::Refuse(allowances, window) => Err(ChargeError::Exceeded { allowances, window }),
            // By then there is a new share, whether the store is back or not.
            DegradedStep::Spent(window) => Err(ChargeError::Unavailable {
                retry_after_seconds: seconds_until(allowances.of(window).resets_at, allowances.as_of).max(1),
                spent: Some(window),
                allowances,
            }),
        }
    }

    /// Counts a refusal against the key, at the time when the request arrived, not when it was refused.
    fn strike(
        self: &Arc<Self>,
        key: &KeyId,
        window: Window,
        limits: Limits,
        allowances: &Allowances,
        arrived: Duration,
    ) {
        let waited = self.clock.monotonic().saturating_sub(arrived).as_millis();
        let arrived: UnixMillis = allowances.as_of.plus(-i64::try_from(waited).unwrap_or(0));
        if let Some(ban) = self.bans.refuse(key, window, limits.of(Window::Minute), arrived) {
            self.begin_ban(ban);
        }
    }
}

fn unavailable(allowances: Allowances) -> ChargeError {
    ChargeError::Unavailable { retry_after_seconds: 1, spent: None, allowances }
}
