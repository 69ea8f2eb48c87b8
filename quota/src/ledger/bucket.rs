//! The store's side of the ledger: one bucket's record and the rule that changes it.
//!
//! [`Bucket::apply`] is the whole protocol of a store. It runs under the bucket's lock (or inside one script), so it is
//! atomic for every node. A bucket is plain data; without the store, the node decides.

use contract::time::UnixMillis;
use contract::window::Window;
use serde::{Deserialize, Serialize};

use super::{Claim, Executed, Incarnation, LEARNING_MILLIS, NodeId, Reply, Statement, day_of, left};

/// Places with a component in a bucket on one day: about 150 bytes each in Redis. When another place comes, those that
/// were silent longest, and for more than [`SILENT_MINUTES`], lose their components: their charges stay, and if they
/// return they start a new component. If no place was silent that long, the new one is refused.
pub const PLACES_MAX: usize = 1_024;

/// A place that sent a statement within this many minutes before the current one keeps its component.
pub const SILENT_MINUTES: i64 = 2;

/// Components removed for one new place, so that the next new places need no search.
const EVICTED_AT_ONCE: usize = 64;

/// How far the store's clock may step back and still be held to the window it has named before, in minutes. Within this
/// bound a spent window never reopens (a failed-over server with a slow clock). Beyond it the earlier clock was clearly
/// wrong, and waiting for the clock to catch up would refuse every request for hours.
pub const CLOCK_STEP_BACK_MINUTES_MAX: i64 = 15;

/// One place's part of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Component {
    /// The place, and the generation that sent these figures.
    node: NodeId,
    seq: u64,
    /// The minute of the next two fields; in any other minute they count as 0.
    minute: i64,
    minute_units: u32,
    minute_spent: u32,
    /// Units in the bucket's day.
    day_units: u32,
}

/// The state of the store when it executes a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreState {
    /// The store's clock.
    pub now: UnixMillis,
    /// The current incarnation of the store's data.
    pub incarnation: Incarnation,
    /// Until when the whole store only learns, because its data is new and older nodes may know more.
    pub learning_until: UnixMillis,
}

/// The record of one project's quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    minute: i64,
    minute_charged: u64,
    day_charged: u64,
    incarnation: Incarnation,
    learning_until: UnixMillis,
    components: Vec<Component>,
    /// A component of this day was removed.
    has_evicted: bool,
    /// The first minute in which a component may have been silent long enough, after a search that found none.
    crowded_until: i64,
}

/// A bucket's record for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketView {
    /// The minute of the figures, counted from the epoch; its day is the day of the day's figures.
    pub minute: i64,
    /// Units charged to the minute.
    pub minute_charged: u64,
    /// Units charged to the day.
    pub day_charged: u64,
    /// The components of the nodes.
    pub nodes: Vec<NodeView>,
}

/// One node's part of a [`BucketView`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// The node.
    pub node: NodeId,
    /// Units spent or held in the minute.
    pub minute_units: u32,
    /// The part of `minute_units` that was unspent at the node's last statement or grant.
    pub held: u32,
    /// Units spent or held in the day.
    pub day_units: u32,
}

/// One node's component as a store in another process keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawComponent {
    pub(crate) node: NodeId,
    /// The minute of the next two fields.
    pub(crate) minute: i64,
    pub(crate) minute_units: u32,
    pub(crate) minute_spent: u32,
    pub(crate) day_units: u32,
}

/// Builds a view. Figures of a window that has ended by `now` are 0.
pub(crate) fn view_of(
    minute: i64,
    (minute_charged, day_charged): (u64, u64),
    components: &[RawComponent],
    now: UnixMillis,
) -> BucketView {
    let now = Window::Minute.index(now);
    let current = if (now..=now.saturating_add(CLOCK_STEP_BACK_MINUTES_MAX)).contains(&minute) { minute } else { now };
    let (same_minute, same_day) = (current == minute, day_of(current) == day_of(minute));
    let nodes = components.iter().filter(|_| same_day).map(|one| {
        let speaks = same_minute && one.minute == minute;
        NodeView {
            node: one.node,
            minute_units: if speaks { one.minute_units } else { 0 },
            held: if speaks { one.minute_units.saturating_sub(one.minute_spent) } else { 0 },
            day_units: one.day_units,
        }
    });
    BucketView {
        minute: current,
        minute_charged: if same_minute { minute_charged } else { 0 },
        day_charged: if same_day { day_charged } else { 0 },
        nodes: nodes.collect(),
    }
}

impl Bucket {
    /// An empty record.
    pub fn new(around: &StoreState) -> Self {
        Self {
            minute: Window::Minute.index(around.now),
            minute_charged: 0,
            day_charged: 0,
            incarnation: around.incarnation,
            learning_until: UnixMillis(i64::MIN),
            components: Vec::new(),
            has_evicted: false,
            crowded_until: i64::MIN,
        }
    }

    /// Executes one statement: ignores it if it is stale or its place has no component here, replaces the node's
    /// component by the claim, then grants in both windows or in neither.
    pub fn apply(&mut self, statement: &Statement, around: &StoreState) -> Reply {
        let node = statement.node;
        match self.component(node.place) {
            Some(known) if node.generation.is_displaced_by(known.node.generation) => return Reply::Displaced,
            Some(known) if (node.generation, statement.seq) <= (known.node.generation, known.seq) => {
                return Reply::Stale;
            }
            None if self.was_evicted(statement, around) => return Reply::Evicted,
            _ => {}
        }
        self.roll(statement, around.now);
        let known = self.component(node.place);
        if known.is_none() && self.components.len() >= PLACES_MAX && !self.make_room() {
            return Reply::Crowded;
        }
        // The charges of an earlier generation stay: none of its units is known to be unspent.
        let mut mine = known.filter(|known| known.node.generation == node.generation).unwrap_or(Component {
            node,
            seq: 0,
            minute: self.minute,
            minute_units: 0,
            minute_spent: 0,
            day_units: 0,
        });
        if mine.minute != self.minute {
            mine = Component { minute: self.minute, minute_units: 0, minute_spent: 0, ..mine };
        }
        let statement = &self.admissible(statement, &mine);
        let learning_until = self.listen(statement, &mine, around);
        self.execute(statement, &mut mine);
        mine.seq = statement.seq;
        self.put(mine);
        let nodes = self.nodes();
        let granted = if learning_until.is_some() { 0 } else { self.grant(statement, nodes) };
        self.charge(&mut mine, granted);
        self.put(mine);
        Reply::Executed(Executed {
            granted,
            now: around.now,
            minute: self.minute,
            minute_charged: self.minute_charged,
            day_charged: self.day_charged,
            own_minute: mine.minute_units,
            own_day: mine.day_units,
            nodes,
            held_elsewhere: self.held_elsewhere(node.place),
            learning_until,
            incarnation: self.incarnation,
        })
    }

    /// The minute of the record.
    pub fn minute(&self) -> i64 {
        self.minute
    }

    /// Whether the bucket can be dropped without changing any quota: its day is over, and so long ago that no clock
    /// within [`CLOCK_STEP_BACK_MINUTES_MAX`] could return to it.
    pub fn is_over(&self, now: UnixMillis) -> bool {
        let now = Window::Minute.index(now);
        day_of(now - CLOCK_STEP_BACK_MINUTES_MAX) > day_of(self.minute)
    }

    /// The record for display. Figures of a window that has ended by `now` are 0.
    pub fn view(&self, now: UnixMillis) -> BucketView {
        let components = self.components.iter().map(|one| RawComponent {
            node: one.node,
            minute: one.minute,
            minute_units: one.minute_units,
            minute_spent: one.minute_spent,
            day_units: one.day_units,
        });
        view_of(self.minute, (self.minute_charged, self.day_charged), &components.collect::<Vec<_>>(), now)
    }

    /// Moves to the minute of `now`, or to the later one that an earlier reply named to the node: a window that
    /// was named never reopens. A minute that only the node named has no effect.
    fn roll(&mut self, statement: &Statement, now: UnixMillis) {
        let now = Window::Minute.index(now);
        self.roll_to(now);
        if (self.minute..=now.saturating_add(CLOCK_STEP_BACK_MINUTES_MAX)).contains(&statement.claim.named) {
            self.enter(statement.claim.named);
        }
    }

    fn roll_to(&mut self, now: i64) {
        if !(now..=now.saturating_add(CLOCK_STEP_BACK_MINUTES_MAX)).contains(&self.minute) {
            self.enter(now);
        }
    }

    fn enter(&mut self, minute: i64) {
        if minute == self.minute {
            return;
        }
        if day_of(minute) != day_of(self.minute) {
            self.day_charged = 0;
            self.components.clear();
            self.has_evicted = false;
            self.crowded_until = i64::MIN;
        }
        self.minute = minute;
        self.minute_charged = 0;
    }

    /// The statement, limited to windows that have begun here. A node that moved on by a faster clock claims a later
    /// window: its component stays, nothing is granted, and the reply tells it the current minute. Its next
    /// statement is about that minute.
    fn admissible(&self, statement: &Statement, mine: &Component) -> Statement {
        if statement.claim.minute <= self.minute {
            return *statement;
        }
        let held = mine.minute_units.saturating_sub(mine.minute_spent);
        let claim = Claim {
            minute: self.minute,
            named: statement.claim.named,
            minute_spent: mine.minute_spent,
            day_spent: mine.day_units.saturating_sub(held),
            held,
        };
        Statement { claim, need: 0, spare: 0, ..*statement }
    }

    /// Detects that charges may have been lost. Returns until when the bucket only learns.
    ///
    /// Three signs: the store's data is new and this bucket comes from older data; the node has read a reply that
    /// is not in the record; the node claims more than the record holds (also after it decided without the store during
    /// an outage; other nodes then did so too). A grant before the other nodes have repeated their statements could
    /// grant the same units twice.
    fn listen(&mut self, statement: &Statement, mine: &Component, around: &StoreState) -> Option<UnixMillis> {
        let ends = around.now.plus(LEARNING_MILLIS);
        let reborn = self.incarnation != around.incarnation;
        let claim = statement.claim;
        let more_today = claim.day_units() > mine.day_units || statement.acked > mine.seq;
        let more_now = claim.minute == self.minute && claim.minute_units() > mine.minute_units;
        let forgotten = day_of(claim.minute) == day_of(self.minute) && (more_today || more_now);
        if reborn || forgotten {
            self.incarnation = around.incarnation;
            self.learning_until = ends;
        }
        // A clock that stepped back must not turn a quarter of a second into an hour.
        self.learning_until = self.learning_until.min(ends);
        let until = self.learning_until.max(around.learning_until).min(ends);
        (until > around.now).then_some(until)
    }

    /// Replaces the node's component with its claim. A claim about another window means that the node has nothing in
    /// this one: units in a reply that never arrived do not exist.
    fn execute(&mut self, statement: &Statement, mine: &mut Component) {
        let claim = statement.claim;
        let minute_units = if claim.minute == self.minute { claim.minute_units() } else { 0 };
        let day_units = if day_of(claim.minute) == day_of(self.minute) { claim.day_units() } else { 0 };
        self.minute_charged = replaced(self.minute_charged, mine.minute_units, minute_units);
        self.day_charged = replaced(self.day_charged, mine.day_units, day_units);
        mine.minute_units = minute_units;
        mine.minute_spent = minute_units.saturating_sub(claim.held);
        mine.day_units = day_units;
    }

    /// Grants waiting requests as long as units are left, and an advance of at most half a fair share of the rest, so
    /// that near the limit no units lie idle on one node while another refuses.
    fn grant(&self, statement: &Statement, nodes: u32) -> u32 {
        let minute = left(statement.limits.of(Window::Minute), self.minute_charged);
        let day = left(statement.limits.of(Window::Day), self.day_charged);
        let room = minute.min(day);
        let need = statement.need.min(room);
        let spare = statement.spare.min((room - need) / nodes.saturating_mul(2).max(2));
        need.saturating_add(spare)
    }

    fn charge(&mut self, mine: &mut Component, granted: u32) {
        self.minute_charged = self.minute_charged.saturating_add(u64::from(granted));
        self.day_charged = self.day_charged.saturating_add(u64::from(granted));
        mine.minute_units = mine.minute_units.saturating_add(granted);
        mine.day_units = mine.day_units.saturating_add(granted);
    }

    fn component(&self, place: u64) -> Option<Component> {
        self.components.iter().copied().find(|component| component.node.place == place)
    }

    fn put(&mut self, mine: Component) {
        match self.components.iter_mut().find(|component| component.node.place == mine.node.place) {
            Some(component) => *component = mine,
            None => self.components.push(mine),
        }
    }

    /// Whether a place without a component has read replies of this day: then its component was removed, or the
    /// store has lost it. While the store may have lost data, the claim is accepted.
    fn was_evicted(&self, statement: &Statement, around: &StoreState) -> bool {
        let learns = self.learning_until.max(around.learning_until) > around.now;
        let may_have_forgotten = learns || self.incarnation != around.incarnation;
        let same_day = day_of(statement.claim.minute) == day_of(self.minute);
        self.has_evicted && statement.acked > 0 && same_day && !may_have_forgotten
    }

    /// Removes the components of the places that were silent longest; returns whether it removed any. Their charges
    /// stay.
    fn make_room(&mut self) -> bool {
        if self.minute < self.crowded_until {
            return false;
        }
        self.components.sort_unstable_by_key(|component| (component.minute, component.node.place));
        let silent_since = self.minute - SILENT_MINUTES;
        let silent = self.components.iter().take_while(|component| component.minute < silent_since).count();
        if silent == 0 {
            let oldest = self.components.first().map_or(self.minute, |component| component.minute);
            self.crowded_until = oldest + SILENT_MINUTES + 1;
            return false;
        }
        self.components.drain(..silent.min(EVICTED_AT_ONCE));
        self.has_evicted = true;
        true
    }

    fn current(&self) -> impl Iterator<Item = &Component> {
        self.components.iter().filter(|component| component.minute == self.minute)
    }

    fn nodes(&self) -> u32 {
        u32::try_from(self.current().count()).unwrap_or(u32::MAX)
    }

    fn held_elsewhere(&self, place: u64) -> u32 {
        self.current()
            .filter(|component| component.node.place != place)
            .map(|component| component.minute_units.saturating_sub(component.minute_spent))
            .fold(0, u32::saturating_add)
    }
}

/// A total after one part was replaced.
fn replaced(total: u64, before: u32, after: u32) -> u64 {
    total.saturating_sub(u64::from(before)).saturating_add(u64::from(after))
}

#[cfg(test)]
mod tests;
