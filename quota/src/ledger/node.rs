//! The node's side of the ledger: one gateway process's state of one bucket, and the units that it may spend.
//!
//! A unit may be spent if a reply granted it and its window has certainly not ended: a grant is valid until the
//! time of asking plus the rest of the window by the store's clock, on the monotonic clock, because the store read its
//! clock after the time of asking. A refusal is remembered until the minute ends, so that refused requests cost
//! nothing. At most one statement per bucket is pending; waiting requests are counted into the next.
//!
//! Without the store the caller uses [`NodeBucket::spend_degraded`]; the next statement claims everything spent there,
//! so the day stays right.

mod degraded;
mod mirror;
mod unclaimed;

use std::time::Duration;

use contract::plan::Limits;
use contract::time::UnixMillis;
use contract::window::Window;

pub use degraded::{DegradedClock, DegradedPolicy, DegradedStep, Share};
use mirror::Mirror;
pub use unclaimed::Unclaimed;

use super::rate::Rate;
use super::{Claim, Executed, NodeId, Statement};
use crate::allowance::Allowances;

/// The traffic that a lease should cover. With 1000 requests per minute over three nodes (5.6 per second each) it holds
/// 28 units, of which a quarter is left when the next are asked for: one call for 21 requests.
const LEASE_TARGET: Duration = Duration::from_secs(5);
/// With fewer requests than this in [`LEASE_TARGET`] (2 per second), every request asks the store, and its headers are
/// exact.
const LEASE_FROM: u32 = 10;
/// A node that dies loses the units it holds: at most the minute's limit divided by this.
pub const LEASE_FRACTION: u32 = 20;
/// A bucket without requests for this long hands back its units, unless it is slow but steady.
pub const IDLE_AFTER: Duration = Duration::from_millis(500);
/// A steady bucket counts as idle after this many times the usual gap between its requests...
const IDLE_GAPS: u32 = 5;
/// ...but never more than this.
pub const IDLE_AFTER_MAX: Duration = Duration::from_secs(2);

/// How long a node waits for other nodes to hand back units before it asks the store again; doubles each time.
pub const RECALL_WAIT: Duration = Duration::from_millis(5);

/// How often in a minute a node asks the others for their units before it refuses. Once is enough for healthy nodes; a
/// node that is busy at that moment, or has a call pending, reacts to the second or third.
pub const RECALLS_MAX: u8 = 3;

/// The result of trying to spend a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A unit was spent.
    Admit(Allowances),
    /// This window is used up.
    Refuse(Allowances, Window),
    /// The node holds no unit and cannot decide: ask the store.
    Ask,
}

/// The purpose of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// This many requests wait.
    Spend(u32),
    /// The lease runs low while the bucket is busy.
    Prefetch,
    /// The held units are not needed.
    HandBack,
    /// The store may have lost data: repeat spent units and keep held ones.
    Assert,
}

/// The pending statement.
#[derive(Clone, Copy, Debug)]
struct PendingStatement {
    seq: u64,
    asked_at: Duration,
    limits: Limits,
    need: u32,
    /// The minute and day units in the statement.
    minute_units: u32,
    day_units: u32,
}

/// One bucket on one node.
#[derive(Clone, Debug)]
pub struct NodeBucket {
    me: NodeId,
    limits: Limits,
    seq: u64,
    acked: u64,
    flight: Option<PendingStatement>,
    mirror: Option<Mirror>,
    rate: Rate,
    used_at: Duration,
    /// Units granted in advance by the last reply.
    last_lease: u32,
    /// Until when the store only learns.
    quiet_until: Duration,
    /// A statement got no reply: the store's record of this node is unknown.
    unsure: bool,
    /// The store may have lost this node's statements.
    must_assert: bool,
    /// The last minute in which this node asked the others for their units, and how often.
    recalled_in: i64,
    recalls: u8,
    /// Until when they may hand units back.
    recalls_until: Duration,
    /// The others must be asked now.
    wants_recall: bool,
}

impl NodeBucket {
    /// A bucket without knowledge. This generation of `me` must never have sent a statement about this bucket.
    pub fn new(me: NodeId, limits: Limits) -> Self {
        Self {
            me,
            limits,
            seq: 0,
            acked: 0,
            flight: None,
            mirror: None,
            rate: Rate::default(),
            used_at: Duration::ZERO,
            last_lease: 0,
            quiet_until: Duration::ZERO,
            unsure: false,
            must_assert: false,
            recalled_in: i64::MIN,
            recalls: 0,
            recalls_until: Duration::ZERO,
            wants_recall: false,
        }
    }

    /// Tries to spend one unit for a request that has just arrived.
    pub fn spend(&mut self, now: Duration, limits: Limits) -> Step {
        self.set_limits(limits);
        self.rate.record(now);
        self.used_at = self.used_at.max(now);
        self.take(now)
    }

    /// Tries to spend one unit for a request that has waited: units granted for waiting requests come first. They were
    /// charged while the window was open, so they count even if the reply arrived after its end.
    pub fn serve(&mut self, now: Duration) -> Step {
        if let Some(mirror) = &mut self.mirror
            && mirror.spend_due()
        {
            return Step::Admit(mirror.show(self.limits, now));
        }
        self.take(now)
    }

    fn take(&mut self, now: Duration) -> Step {
        let Some(mirror) = &mut self.mirror else { return Step::Ask };
        if mirror.spend_held(now) {
            return Step::Admit(mirror.show(self.limits, now));
        }
        match mirror.refusal(now) {
            Some(window) => Step::Refuse(mirror.show(self.limits, now), window),
            None => Step::Ask,
        }
    }

    /// The caller's allowances, without spending. `wall` is this machine's clock, used before the first reply.
    pub fn peek(&self, now: Duration, wall: UnixMillis) -> Allowances {
        match &self.mirror {
            Some(mirror) => mirror.allowances(self.limits, now),
            None => Mirror::blank(wall, now).allowances(self.limits, now),
        }
    }

    /// The next statement; `None` while one is pending.
    pub fn ask(&mut self, now: Duration, purpose: Purpose) -> Option<Statement> {
        if self.flight.is_some() {
            return None;
        }
        let claim = self.mirror.as_mut().map_or(Claim::NOTHING, |mirror| {
            mirror.expire(now);
            if purpose == Purpose::HandBack {
                mirror.drop_held();
            }
            mirror.claim()
        });
        let (need, spare) = match purpose {
            // Nothing is granted before the store has received the claim of spent units.
            _ if self.mirror.as_ref().is_some_and(Mirror::goes_by_own_clock) => (0, 0),
            Purpose::Spend(waiting) => (waiting, self.lease(now)),
            Purpose::Prefetch => (0, self.lease(now).saturating_sub(claim.held)),
            Purpose::HandBack | Purpose::Assert => (0, 0),
        };
        self.must_assert = false;
        self.seq += 1;
        self.flight = Some(PendingStatement {
            seq: self.seq,
            asked_at: now,
            limits: self.limits,
            need,
            minute_units: claim.minute_units(),
            day_units: claim.day_units(),
        });
        Some(Statement { node: self.me, seq: self.seq, acked: self.acked, claim, need, spare, limits: self.limits })
    }

    /// Reads the reply of statement `seq`. `false` if that statement was abandoned before: its grant does not
    /// exist, and the next statement says so.
    pub fn receive(&mut self, now: Duration, seq: u64, executed: &Executed) -> bool {
        let Some(flight) = self.flight.take_if(|flight| flight.seq == seq) else { return false };
        self.acked = seq;
        self.unsure = false;
        // Units granted under old limits are not used: the next statement returns them.
        let valid = flight.limits == self.limits;
        let granted = if valid { executed.granted } else { 0 };
        self.last_lease = granted.saturating_sub(flight.need);
        let mirror = self.mirror.get_or_insert_with(|| Mirror::blank(executed.now, now));
        self.must_assert |= mirror.receive(executed, granted, flight.need, flight.asked_at, now);
        // A refusal that other nodes could prevent is postponed: if requests wait, the other nodes are asked for their
        // units, and then the store is asked again.
        let recalls_before = if self.recalled_in == executed.minute { self.recalls } else { 0 };
        let recalling = now < self.recalls_until;
        let preventable = valid
            && executed.held_elsewhere > 0
            && executed.learning_until.is_none()
            && (recalling || recalls_before < RECALLS_MAX);
        if preventable && !recalling && granted < flight.need {
            (self.recalled_in, self.recalls) = (executed.minute, recalls_before + 1);
            self.recalls_until = now + RECALL_WAIT * (1 << recalls_before);
            self.wants_recall = true;
        }
        mirror.refuse_if_spent(if valid && !preventable { Some(self.limits) } else { None }, executed);
        self.quiet_until = match executed.learning_until {
            Some(until) => now + millis(until.since(executed.now)),
            None => self.recalls_until,
        };
        true
    }

    /// Whether to ask the other nodes for their units of this bucket; true once per recall.
    pub fn take_recall(&mut self) -> bool {
        std::mem::take(&mut self.wants_recall)
    }

    /// Abandons statement `seq`: it failed, timed out, or was overtaken. `false` if it was answered or abandoned
    /// before.
    pub fn abandon(&mut self, seq: u64) -> bool {
        let Some(flight) = self.flight.take_if(|flight| flight.seq == seq) else { return false };
        self.unsure = true;
        if let Some(mirror) = &mut self.mirror {
            mirror.may_be_charged_less(flight.minute_units, flight.day_units);
        }
        true
    }

    /// Statement `seq` was answered, but not executed. `false` if it was abandoned before.
    pub fn was_not_executed(&mut self, seq: u64) -> bool {
        self.flight.take_if(|flight| flight.seq == seq).is_some()
    }

    /// This node's identity.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// Continues under a new generation or place, because the store answered statement `seq` that the current one is
    /// over. The store's charges for the old one stay, so the new one claims only what was spent beyond them. `false`
    /// if that statement was abandoned before.
    pub fn begin_anew(&mut self, seq: u64, me: NodeId) -> bool {
        if !self.was_not_executed(seq) {
            return false;
        }
        self.me = me;
        self.acked = 0;
        self.unsure = false;
        if let Some(mirror) = &mut self.mirror {
            mirror.begin_anew();
            self.must_assert |= mirror.owes();
        }
        true
    }

    /// Keeps units granted for requests that have disconnected, like a lease. Call it after all waiting requests were
    /// served.
    pub fn keep_rest(&mut self) {
        if let Some(mirror) = &mut self.mirror {
            mirror.keep_rest();
        }
    }

    /// Takes back a unit of the minute that ends at `resets_at`: its request never reached an upstream through our own
    /// fault, or its caller has disconnected.
    pub fn refund(&mut self, now: Duration, allowances: &Allowances) {
        if let Some(mirror) = &mut self.mirror {
            mirror.refund(now, Window::Minute.index(allowances.minute.resets_at.to_millis()) - 1);
        }
    }

    /// Whether a background call would spare the next requests a wait.
    pub fn wants_prefetch(&self, now: Duration) -> bool {
        let low = self.mirror.as_ref().is_some_and(|mirror| mirror.runs_low(now, self.last_lease / 4));
        low && self.last_lease > 0 && self.flight.is_none() && now >= self.quiet_until && self.lease(now) > 0
    }

    /// Whether the store's record differs from what this node has spent, and no request has needed the rest recently.
    pub fn wants_hand_back(&self, now: Duration) -> bool {
        self.flight.is_none() && self.owes() && now >= self.used_at + self.idle_after(now)
    }

    /// Whether the store's record of this node differs from the units it has spent.
    pub fn owes(&self) -> bool {
        self.unsure || self.mirror.as_ref().is_some_and(Mirror::owes)
    }

    /// The store may have lost data: the node repeats its statement as soon as none is pending. A bucket with windows
    /// that ended long ago has nothing to repeat.
    pub fn demand_assert(&mut self, now: Duration) {
        self.must_assert = self.mirror.as_ref().is_some_and(|mirror| mirror.matters(now));
    }

    /// Like [`Self::demand_assert`], for a store with new data: it has also lost the charges of earlier generations of
    /// this node.
    pub fn store_forgot(&mut self, now: Duration) {
        if let Some(mirror) = &mut self.mirror {
            mirror.claim_everything();
        }
        self.demand_assert(now);
    }

    /// Whether to repeat this node's statement now.
    pub fn wants_assert(&self) -> bool {
        self.must_assert && self.flight.is_none()
    }

    /// Whether the node may drop the bucket: no statement is pending or needed. Its charges stay.
    pub fn is_forgettable(&self, now: Duration) -> bool {
        self.flight.is_none() && !self.owes() && now >= self.used_at + IDLE_AFTER_MAX
    }

    /// Until when the store only learns; it grants nothing earlier.
    pub fn quiet_until(&self) -> Duration {
        self.quiet_until
    }

    /// The claim that the node would send now.
    pub fn claim(&self) -> Claim {
        self.mirror.as_ref().map_or(Claim::NOTHING, Mirror::claim)
    }

    /// Applies new limits at once; the spent units stay. The held units were granted under the old limits, and the next
    /// statement returns them.
    fn set_limits(&mut self, limits: Limits) {
        if limits == self.limits {
            return;
        }
        self.limits = limits;
        if let Some(mirror) = &mut self.mirror {
            mirror.forget_limits();
        }
    }

    /// Units to hold: what the current traffic uses in [`LEASE_TARGET`]; none while it is slow.
    fn lease(&self, now: Duration) -> u32 {
        let expected = self.rate.expected_in(now, LEASE_TARGET);
        let most = (self.limits.of(Window::Minute) / LEASE_FRACTION).max(1);
        if expected < LEASE_FROM { 0 } else { expected.min(most) }
    }

    fn idle_after(&self, now: Duration) -> Duration {
        let per_minute = self.rate.expected_in(now, Duration::from_mins(1)).max(1);
        (Duration::from_mins(IDLE_GAPS.into()) / per_minute).clamp(IDLE_AFTER, IDLE_AFTER_MAX)
    }
}

/// The allowances of a project that was never charged on this node.
pub fn untouched(limits: Limits, now: Duration, wall: UnixMillis) -> Allowances {
    Mirror::blank(wall, now).allowances(limits, now)
}

/// Milliseconds as a duration; zero if negative.
fn millis(span: i64) -> Duration {
    Duration::from_millis(u64::try_from(span).unwrap_or(0))
}

#[cfg(test)]
mod tests;
