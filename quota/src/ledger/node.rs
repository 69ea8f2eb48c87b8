//! The node's side of the ledger: what one gateway process knows of one bucket, and what it may do with it.
//!
//! A unit may be spent when it was granted by a settlement this node has read, in a window that has surely not ended:
//! a grant is valid until `moment of asking + (end of window - store's clock)` on the monotonic clock, and the store
//! looked at its clock after the moment of asking. A refusal is remembered until the minute ends, so that a refused
//! request costs nothing. One statement per bucket is under way at a time; whoever waits is counted into the next.
//!
//! When the store is gone the caller turns to [`NodeBucket::spend_alone`]; everything spent there is part of the next
//! statement, so the day stays right.

mod alone;
mod known;

use std::time::Duration;

use contract::plan::Limits;
use contract::time::UnixMillis;
use contract::window::Window;

pub use alone::{Alone, AloneClock, AloneStep, Share};
use known::Known;

use super::rate::Rate;
use super::{Claim, NodeId, Settlement, Statement};
use crate::standing::Standing;

/// For how long a lease should last. At a plan of 1000 per minute spread over three nodes (5.6 requests per second
/// each) this is 14 units: one call for 14 requests.
const LEASE_TARGET: Duration = Duration::from_millis(2_500);
/// Below this many requests in [`LEASE_TARGET`] (2 per second) every request asks, and its headers are exact.
const LEASE_FROM: u32 = 5;
/// A node that dies takes what it holds with it: at most this fraction of the minute's limit, one in so many.
pub const LEASE_FRACTION: u32 = 20;
/// A bucket that nobody used for this long hands back what it holds, unless it is slow but steady.
pub const IDLE_AFTER: Duration = Duration::from_millis(500);
/// A steady bucket is given this many times the usual gap between its requests before it counts as idle...
const IDLE_GAPS: u32 = 5;
/// ...but never more than this.
pub const IDLE_AFTER_MAX: Duration = Duration::from_secs(2);

/// How long a node waits for what other nodes hand back before it asks the store again; twice as long each time.
pub const RECALL_WAIT: Duration = Duration::from_millis(5);

/// How often in a minute a node asks the others for what they hold before it refuses. Once is enough for nodes that are
/// well; one that is busy just then, or has a call under way, hears the second or the third.
pub const RECALLS_MAX: u32 = 3;

/// What became of an attempt to spend a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A unit was spent.
    Admit(Standing),
    /// This window has nothing left.
    Refuse(Standing, Window),
    /// The node holds nothing and does not know: the store has to be asked.
    Ask,
}

/// What a statement is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Requests wait: this many.
    Spend(u32),
    /// The lease runs low while the bucket is busy.
    Prefetch,
    /// Nobody needs what is held.
    HandBack,
    /// The store may have forgotten: repeat what was spent and keep what is held.
    Assert,
}

/// The statement under way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    seq: u64,
    asked_at: Duration,
    limits: Limits,
    need: u32,
    /// What the statement says of its minute and day.
    minute_units: u32,
    day_units: u32,
}

/// One bucket on one node.
#[derive(Clone, Debug)]
pub struct NodeBucket {
    me: NodeId,
    limits: Limits,
    seq: u64,
    heard: u64,
    flight: Option<Flight>,
    known: Option<Known>,
    rate: Rate,
    used_at: Duration,
    /// Units granted in advance by the last settlement.
    last_lease: u32,
    /// The store only listens until then.
    quiet_until: Duration,
    /// A statement was sent whose reply never came: what the store holds for this node is not known.
    unsure: bool,
    /// The store may have forgotten what this node told it.
    must_assert: bool,
    /// The last minute in which this node has asked the others for what they hold, and how often.
    recalled: (i64, u32),
    /// Until then they may answer.
    recalls_until: Duration,
    /// The others are to be asked now.
    wants_recall: bool,
}

impl NodeBucket {
    /// A bucket this node knows nothing of. This life of `me` must never have spoken about this bucket before.
    pub fn new(me: NodeId, limits: Limits) -> Self {
        Self {
            me,
            limits,
            seq: 0,
            heard: 0,
            flight: None,
            known: None,
            rate: Rate::default(),
            used_at: Duration::ZERO,
            last_lease: 0,
            quiet_until: Duration::ZERO,
            unsure: false,
            must_assert: false,
            recalled: (i64::MIN, 0),
            recalls_until: Duration::ZERO,
            wants_recall: false,
        }
    }

    /// Tries to spend one unit for a request that has just arrived.
    pub fn spend(&mut self, now: Duration, limits: Limits) -> Step {
        self.adopt(limits);
        self.rate.note(now);
        self.used_at = self.used_at.max(now);
        self.take(now)
    }

    /// Tries to spend one unit for a request that has waited: units granted for those who waited come first. They
    /// were charged while the window was open, so they count even if the reply took until after its end.
    pub fn serve(&mut self, now: Duration) -> Step {
        if let Some(known) = &mut self.known
            && known.spend_due()
        {
            return Step::Admit(known.show(self.limits, now));
        }
        self.take(now)
    }

    fn take(&mut self, now: Duration) -> Step {
        let Some(known) = &mut self.known else { return Step::Ask };
        if known.spend_held(now) {
            return Step::Admit(known.show(self.limits, now));
        }
        match known.refusal(now) {
            Some(window) => Step::Refuse(known.show(self.limits, now), window),
            None => Step::Ask,
        }
    }

    /// Where the caller stands, without spending. `wall` is this machine's clock, used before the store has been
    /// heard of.
    pub fn peek(&self, now: Duration, wall: UnixMillis) -> Standing {
        match &self.known {
            Some(known) => known.standing(self.limits, now),
            None => Known::blank(wall, now).standing(self.limits, now),
        }
    }

    /// The next statement; `None` while one is under way.
    pub fn ask(&mut self, now: Duration, purpose: Purpose) -> Option<Statement> {
        if self.flight.is_some() {
            return None;
        }
        let claim = self.known.as_mut().map_or(Claim::NOTHING, |known| {
            known.expire(now);
            if purpose == Purpose::HandBack {
                known.drop_held();
            }
            known.claim()
        });
        let (need, spare) = match purpose {
            // Nothing is granted before the store has heard what was spent.
            _ if self.known.as_ref().is_some_and(Known::goes_by_own_clock) => (0, 0),
            Purpose::Spend(waiting) => (waiting, self.lease(now)),
            Purpose::Prefetch => (0, self.lease(now).saturating_sub(claim.held)),
            Purpose::HandBack | Purpose::Assert => (0, 0),
        };
        self.must_assert = false;
        self.seq += 1;
        self.flight = Some(Flight {
            seq: self.seq,
            asked_at: now,
            limits: self.limits,
            need,
            minute_units: claim.minute_units(),
            day_units: claim.day_units(),
        });
        Some(Statement { node: self.me, seq: self.seq, heard: self.heard, claim, need, spare, limits: self.limits })
    }

    /// Reads the settlement of statement `seq`. `false` when that statement was given up before: its grant does not
    /// exist, and the next statement says so.
    pub fn hear(&mut self, now: Duration, seq: u64, settlement: &Settlement) -> bool {
        let Some(flight) = self.flight.take_if(|flight| flight.seq == seq) else { return false };
        self.heard = seq;
        self.unsure = false;
        // What was granted under limits that no longer hold is not used: the next statement returns it.
        let valid = flight.limits == self.limits;
        let granted = if valid { settlement.granted } else { 0 };
        self.last_lease = granted.saturating_sub(flight.need);
        let known = self.known.get_or_insert_with(|| Known::blank(settlement.now, now));
        self.must_assert |= known.hear(settlement, granted, flight.need, flight.asked_at, now);
        // A refusal that other nodes could prevent is put off: when somebody waits they are asked for what they hold, and
        // then the store is asked again.
        let recalls_before = if self.recalled.0 == settlement.minute { self.recalled.1 } else { 0 };
        let recalling = now < self.recalls_until;
        let preventable = valid
            && settlement.held_elsewhere > 0
            && settlement.learning_until.is_none()
            && (recalling || recalls_before < RECALLS_MAX);
        if preventable && !recalling && granted < flight.need {
            self.recalled = (settlement.minute, recalls_before + 1);
            self.recalls_until = now + RECALL_WAIT * (1 << recalls_before);
            self.wants_recall = true;
        }
        known.refuse_if_spent(if valid && !preventable { Some(self.limits) } else { None }, settlement);
        self.quiet_until = match settlement.learning_until {
            Some(until) => now + millis(until.since(settlement.now)),
            None => self.recalls_until,
        };
        true
    }

    /// Whether the other nodes are to be asked for what they hold of this bucket; says so once.
    pub fn take_recall(&mut self) -> bool {
        std::mem::take(&mut self.wants_recall)
    }

    /// Gives statement `seq` up: it failed, timed out, or was overtaken. `false` when it was answered or given up
    /// before.
    pub fn give_up(&mut self, seq: u64) -> bool {
        let Some(flight) = self.flight.take_if(|flight| flight.seq == seq) else { return false };
        self.unsure = true;
        if let Some(known) = &mut self.known {
            known.may_be_charged_less(flight.minute_units, flight.day_units);
        }
        true
    }

    /// Statement `seq` was answered, but not executed. `false` when it was given up before.
    pub fn was_not_executed(&mut self, seq: u64) -> bool {
        self.flight.take_if(|flight| flight.seq == seq).is_some()
    }

    /// Who speaks.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// Goes on under a new life or place, because the store said to statement `seq` that this one is over. What the store
    /// has charged to this one stays charged there, so the new one claims only what was spent beyond that. `false` when that
    /// statement was given up before.
    pub fn begin_anew(&mut self, seq: u64, me: NodeId) -> bool {
        if !self.was_not_executed(seq) {
            return false;
        }
        self.me = me;
        self.heard = 0;
        self.unsure = false;
        if let Some(known) = &mut self.known {
            known.begin_anew();
            self.must_assert |= known.owes();
        }
        true
    }

    /// What was granted for requests that have gone away meanwhile is kept like a lease. Called after everybody who
    /// waited was served.
    pub fn keep_rest(&mut self) {
        if let Some(known) = &mut self.known {
            known.keep_rest();
        }
    }

    /// Takes back a unit of the minute that ends at `resets_at`: its request never reached an upstream through our own
    /// fault, or its caller has gone.
    pub fn refund(&mut self, now: Duration, standing: &Standing) {
        if let Some(known) = &mut self.known {
            known.refund(now, Window::Minute.index(standing.minute.resets_at.to_millis()) - 1);
        }
    }

    /// Whether a call in the background would spare the next requests from waiting.
    pub fn wants_prefetch(&self, now: Duration) -> bool {
        let low = self.known.as_ref().is_some_and(|known| known.runs_low(now, self.last_lease / 4));
        low && self.last_lease > 0 && self.flight.is_none() && now >= self.quiet_until && self.lease(now) > 0
    }

    /// Whether the store holds more or less for this node than it has spent, and nobody has needed the rest lately.
    pub fn wants_hand_back(&self, now: Duration) -> bool {
        self.flight.is_none() && self.owes() && now >= self.used_at + self.idle_after(now)
    }

    /// Whether the store's books for this node differ from what it has spent.
    pub fn owes(&self) -> bool {
        self.unsure || self.known.as_ref().is_some_and(Known::owes)
    }

    /// Notes that the store may have forgotten: what this node knows is to be repeated as soon as no statement is
    /// under way. A bucket whose windows are long over has nothing to repeat.
    pub fn demand_assert(&mut self, now: Duration) {
        self.must_assert = self.known.as_ref().is_some_and(|known| known.matters(now));
    }

    /// As [`Self::demand_assert`], for a store whose memory is a new one: it has forgotten earlier lives of this node as well.
    pub fn store_forgot(&mut self, now: Duration) {
        if let Some(known) = &mut self.known {
            known.claim_everything();
        }
        self.demand_assert(now);
    }

    /// Whether the node's knowledge is to be repeated to the store now.
    pub fn wants_assert(&self) -> bool {
        self.must_assert && self.flight.is_none()
    }

    /// Whether the node may forget the bucket: nothing is under way and nothing is owed. What was spent stays charged.
    pub fn is_forgettable(&self, now: Duration) -> bool {
        self.flight.is_none() && !self.owes() && now >= self.used_at + IDLE_AFTER_MAX
    }

    /// Until when the store only listens; asking earlier brings nothing.
    pub fn quiet_until(&self) -> Duration {
        self.quiet_until
    }

    /// What the node would state now.
    pub fn claim(&self) -> Claim {
        self.known.as_ref().map_or(Claim::NOTHING, Known::claim)
    }

    /// New limits take effect at once; what was used stays used. What is held was granted under the old ones and is
    /// returned by the next statement.
    fn adopt(&mut self, limits: Limits) {
        if limits == self.limits {
            return;
        }
        self.limits = limits;
        if let Some(known) = &mut self.known {
            known.forget_limits();
        }
    }

    /// Units to hold: what the present flow uses in [`LEASE_TARGET`], nothing while it is slow.
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

/// Where a project stands that was never charged on this node.
pub fn untouched(limits: Limits, now: Duration, wall: UnixMillis) -> Standing {
    Known::blank(wall, now).standing(limits, now)
}

/// A span as a duration; nothing when negative.
fn millis(span: i64) -> Duration {
    Duration::from_millis(u64::try_from(span).unwrap_or(0))
}

#[cfg(test)]
mod tests;
