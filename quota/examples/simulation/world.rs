//! The event loop: requests arrive, messages travel, faults happen.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;

use contract::plan::Limits;
use contract::time::UnixMillis;
use contract::window::Window;
use quota::ledger::node::{DegradedStep, Share, Step};
use quota::ledger::{Incarnation, Reply, Statement, day_of};

use super::Summary;
use super::audit::{Audit, minute_of};
use super::node::{Fate, SimNode};
use super::random::Random;
use super::scenario::{Fault, Kind, Micros, SECOND, Scenario};
use super::store::SimStore;

/// Budget of a call.
const BUDGET: Micros = 50_000;
/// Pause between heartbeats.
const HEARTBEAT: Micros = 100_000;
/// Time after the last request until every message has arrived.
const QUIET: Micros = 12 * SECOND;

/// An event.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrivals,
    Crowd,
    Fault(usize),
    Restart(usize),
    Beat(usize, u64),
    /// A statement reaches the store.
    Stated(usize, u64, Statement),
    /// A reply reaches the node, if it is still this process.
    Replied(usize, u64, u64, Reply),
    TimedOut(usize, u64, u64),
    /// A heartbeat reaches the store; its reply reaches the node; its budget runs out.
    HeartbeatSent(usize, u64, u64),
    HeartbeatReceived(usize, u64, u64, Incarnation, UnixMillis),
    HeartbeatTimedOut(usize, u64, u64),
    AskAgain(usize, u64),
    /// Another node would refuse because this one holds units.
    Recalled(usize, u64),
}

/// An event and its time. The heap returns the greatest first, so "less" means later; events at the same time happen in
/// the order of planning.
#[derive(Clone, Copy, Debug)]
struct Planned {
    at: Micros,
    serial: u64,
    event: Event,
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.serial).cmp(&(self.at, self.serial))
    }
}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Planned {}

/// One world.
pub(super) struct World<'a> {
    scenario: &'a Scenario,
    random: Random,
    now: Micros,
    events: BinaryHeap<Planned>,
    serial: u64,
    store: SimStore,
    nodes: Vec<Option<SimNode>>,
    processes: u64,
    cut_until: Vec<Micros>,
    /// The pending heartbeat of each node.
    heartbeats: Vec<Option<u64>>,
    limits: Limits,
    /// Some requests were admitted by a clock other than the store's.
    own_clocks: bool,
    /// Nodes that may have decided about requests since the last check.
    acted: Vec<usize>,
    audit: Audit,
}

impl<'a> World<'a> {
    /// The world of a scenario at its beginning.
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let mut world = Self {
            scenario,
            random: scenario.random.clone(),
            now: 0,
            events: BinaryHeap::new(),
            serial: 0,
            store: SimStore::new(scenario.starts_at, scenario.forgets()),
            nodes: (0..scenario.nodes).map(|_| None).collect(),
            processes: 0,
            cut_until: vec![0; scenario.nodes],
            heartbeats: vec![None; scenario.nodes],
            limits: scenario.limits,
            own_clocks: false,
            acted: Vec::new(),
            audit: Audit::new(scenario),
        };
        for place in 0..scenario.nodes {
            world.start(place);
        }
        for (index, (at, _)) in scenario.faults.iter().enumerate() {
            world.at(*at, Event::Fault(index));
            // Many requests just before and just after a loss: the lost data matters, and requests try to exploit it.
            let (before, after) = (world.random.between(0, SECOND / 2), world.random.between(0, SECOND / 20));
            world.at(at.saturating_sub(before), Event::Crowd);
            world.at(at + after, Event::Crowd);
        }
        world.at(0, Event::Arrivals);
        world
    }

    /// Runs all events and checks the promises.
    pub(super) fn run(mut self) -> Result<Summary, String> {
        let end = self.scenario.lasts + QUIET;
        while let Some(Planned { at, event, .. }) = self.events.pop().filter(|next| next.at <= end) {
            self.now = at;
            self.happen(event);
            self.collect()?;
            self.store.is_in_its_own_minute(self.now)?;
        }
        self.audit.judge()?;
        self.judge_record()?;
        self.audit.summary.statements = self.store.statements;
        Ok(self.audit.summary)
    }

    fn at(&mut self, when: Micros, event: Event) {
        self.serial += 1;
        self.events.push(Planned { at: when.max(self.now), serial: self.serial, event });
    }

    fn start(&mut self, place: usize) {
        self.processes += 1;
        let process = self.processes;
        let shares = matches!(self.scenario.kind, Kind::Outage | Kind::Chaos);
        let nodes = u32::try_from(self.scenario.nodes).ok().and_then(NonZeroU32::new).filter(|_| shares);
        let share = nodes.map(|nodes| Share::new(nodes, u32::try_from(place).unwrap_or(0)));
        if let Some(node) = self.nodes.get_mut(place) {
            *node = Some(SimNode::new(place, process, self.limits, share));
        }
        let first = self.random.between(0, HEARTBEAT);
        self.at(self.now + first, Event::Beat(place, process));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrivals => self.arrive(),
            Event::Crowd => {
                let crowd = self.random.between(1, self.scenario.demand);
                self.crowd(crowd);
            }
            Event::Fault(index) => self.strike(index),
            Event::Restart(place) => self.start(place),
            Event::Beat(place, process) => self.beat(place, process),
            Event::Stated(place, process, statement) => self.stated(place, process, statement),
            Event::Replied(place, process, seq, reply) => {
                if let Reply::Executed(executed) = reply {
                    self.audit.summary.learning += u64::from(executed.learning_until.is_some());
                }
                self.with(place, process, |node, now, _| node.receive(now, seq, &reply));
            }
            Event::TimedOut(place, process, seq) => {
                self.with(place, process, |node, now, wall| node.time_out(now, wall, seq));
            }
            Event::HeartbeatSent(place, process, heartbeat) => {
                if self.now < self.store.stalled_until {
                    self.at(self.store.stalled_until, Event::HeartbeatSent(place, process, heartbeat));
                } else {
                    let felt = Event::HeartbeatReceived(
                        place,
                        process,
                        heartbeat,
                        self.store.incarnation(),
                        self.store.clock(self.now),
                    );
                    self.travel(place, &felt);
                }
            }
            Event::HeartbeatReceived(place, process, heartbeat, incarnation, clock) => {
                if self.heartbeat_ends(place, heartbeat) {
                    self.with(place, process, |node, now, _| node.receive_heartbeat(now, (incarnation, clock)));
                }
            }
            Event::HeartbeatTimedOut(place, process, heartbeat) => {
                if self.heartbeat_ends(place, heartbeat) {
                    self.with(place, process, |node, _, _| {
                        node.fail();
                        None
                    });
                }
            }
            Event::Recalled(place, process) => self.with(place, process, |node, now, _| node.recalled(now)),
            Event::AskAgain(place, process) => self.with(place, process, |node, now, _| node.ask(now)),
        }
    }

    /// Requests arrive, alone or in a burst; plans the next arrival.
    fn arrive(&mut self) {
        let burst = if self.random.chance(self.scenario.bursts) { self.random.between(2, 60) } else { 1 };
        self.crowd(burst);
        let gap = self.random.between(0, burst * 120 * SECOND / self.scenario.demand.max(1));
        if self.now + gap < self.scenario.lasts {
            self.at(self.now + gap, Event::Arrivals);
        }
    }

    /// `requests` at once: sometimes all at one node.
    fn crowd(&mut self, requests: u64) {
        let nodes = self.scenario.nodes as u64;
        let (first, spread) = (self.random.number() % nodes, self.random.chance(500));
        for _ in 0..requests {
            let place = if spread { self.random.number() % nodes } else { first };
            let place = usize::try_from(place).unwrap_or(0);
            let limits = self.limits;
            if let Some(process) = self.nodes.get(place).and_then(Option::as_ref).map(|node| node.process) {
                self.with(place, process, |node, now, wall| node.request(now, wall, limits));
            }
        }
    }

    fn strike(&mut self, index: usize) {
        let Some((_, fault)) = self.scenario.faults.get(index).copied() else { return };
        match fault {
            Fault::Stall(lasts) => {
                let until = self.now + lasts;
                self.audit.stalled(self.store.clock(self.now).0, self.store.clock(until).0);
                self.store.stalled_until = self.store.stalled_until.max(until);
            }
            Fault::Empty => self.store.empty(self.now),
            Fault::Failover(lost, clock_off) => self.store.fail_over(self.now, lost, clock_off),
            Fault::Crash(place, pause) => {
                if let Some(node) = self.nodes.get_mut(place)
                    && node.take().is_some()
                {
                    self.at(self.now + pause, Event::Restart(place));
                }
            }
            Fault::Cut(place, lasts) => {
                let until = self.now + lasts;
                if let Some(cut) = self.cut_until.get_mut(place) {
                    *cut = until.max(*cut);
                }
            }
            Fault::Step(place, millis) => {
                if let Some(node) = self.nodes.get_mut(place).and_then(Option::as_mut) {
                    node.step(millis);
                }
            }
            Fault::Limits(limits) => {
                self.limits = limits;
                self.audit.limits_changed();
            }
        }
    }

    fn beat(&mut self, place: usize, process: u64) {
        self.with(place, process, |node, now, _| node.hand_back(now));
        let Some(node) = self.nodes.get(place).and_then(Option::as_ref).filter(|node| node.process == process) else {
            return;
        };
        let pause = if node.store_is_gone() { 2 * HEARTBEAT } else { HEARTBEAT };
        self.at(self.now + pause, Event::Beat(place, process));
        self.serial += 1;
        let heartbeat = self.serial;
        if let Some(waits_for) = self.heartbeats.get_mut(place) {
            *waits_for = Some(heartbeat);
        }
        self.travel(place, &Event::HeartbeatSent(place, process, heartbeat));
        self.at(self.now + BUDGET, Event::HeartbeatTimedOut(place, process, heartbeat));
    }

    fn heartbeat_ends(&mut self, place: usize, heartbeat: u64) -> bool {
        self.heartbeats.get_mut(place).is_some_and(|waits_for| waits_for.take_if(|it| *it == heartbeat).is_some())
    }

    fn stated(&mut self, place: usize, process: u64, statement: Statement) {
        if self.now < self.store.stalled_until {
            self.at(self.store.stalled_until, Event::Stated(place, process, statement));
            return;
        }
        let reply = self.store.apply(self.now, &statement);
        self.travel(place, &Event::Replied(place, process, statement.seq, reply));
    }

    /// Lets a node act, and sends its statement.
    fn with(&mut self, place: usize, process: u64, act: impl FnOnce(&mut SimNode, Micros, i64) -> Option<Statement>) {
        let (now, wall) = (self.now, self.scenario.starts_at + i64::try_from(self.now / 1_000).unwrap_or(0));
        let Some(node) = self.nodes.get_mut(place).and_then(Option::as_mut).filter(|node| node.process == process)
        else {
            return;
        };
        let statement = act(node, now, wall);
        self.acted.push(place);
        let recalls = node.bucket.take_recall();
        if let Some(again) = node.quiet_until(now) {
            self.at(again, Event::AskAgain(place, process));
        }
        if let Some(statement) = statement {
            self.travel(place, &Event::Stated(place, process, statement));
            self.at(self.now + BUDGET, Event::TimedOut(place, process, statement.seq));
        }
        if recalls {
            let others: Vec<_> = self.nodes.iter().map(|node| node.as_ref().map(|node| node.process)).collect();
            for (other, process) in others.into_iter().enumerate().filter(|(other, _)| *other != place) {
                if let Some(process) = process {
                    self.travel(other, &Event::Recalled(other, process));
                }
            }
        }
    }

    /// Sends a message: it may be lost, duplicated, or very late.
    fn travel(&mut self, place: usize, message: &Event) {
        if self.cut_until.get(place).is_some_and(|until| self.now < *until) || self.random.chance(self.scenario.lost) {
            return;
        }
        let copies = if self.random.chance(self.scenario.duplicated) { 2 } else { 1 };
        for _ in 0..copies {
            let late = self.random.chance(self.scenario.late);
            let longest = if late { 5 * SECOND } else { self.scenario.delay_max };
            let delay = self.random.between(20, longest);
            self.at(self.now + delay, *message);
        }
    }

    /// Passes the results of requests to the audit.
    fn collect(&mut self) -> Result<(), String> {
        for place in self.acted.drain(..) {
            let Some(node) = self.nodes.get_mut(place).and_then(Option::as_mut) else { continue };
            for fate in node.fates.drain(..) {
                match fate {
                    Fate::Decided(Step::Admit(allowances)) => {
                        self.audit.admitted(node.process, &allowances, false, None)?;
                    }
                    Fate::Degraded(DegradedStep::Admit(allowances), by_own_clock) => {
                        let minute = by_own_clock.then(|| Window::Minute.index(self.store.clock(self.now)));
                        self.own_clocks |= by_own_clock;
                        self.audit.admitted(node.process, &allowances, true, minute)?;
                    }
                    Fate::Decided(Step::Refuse(allowances, window))
                    | Fate::Degraded(DegradedStep::Refuse(allowances, window), _) => {
                        self.audit.refused(node.process, &allowances, window)?;
                    }
                    Fate::Unavailable | Fate::Degraded(DegradedStep::Spent(_), _) => self.audit.unavailable()?,
                    Fate::WentBack => self.audit.went_back(node.process),
                    Fate::Decided(Step::Ask) => return Err("a request was left without an answer".to_owned()),
                }
                if let Fate::Decided(Step::Admit(allowances)) = fate
                    && self.scenario.kind == Kind::Lossy
                    && minute_of(&allowances) < Window::Minute.index(self.store.clock(self.now)) - 1
                {
                    return Err(format!("a unit of a minute long over was spent: {allowances:?}"));
                }
            }
        }
        Ok(())
    }

    /// After the last message the day's charge equals the admitted requests: nothing is lost or counted twice.
    /// Units of dead nodes stay charged, unless the store lost its data together with such a node.
    fn judge_record(&self) -> Result<(), String> {
        let Some(record) = self.store.view(self.now) else { return Ok(()) };
        let admitted = self.audit.admitted_in_day(day_of(record.minute));
        let wrong = if self.scenario.kind == Kind::Chaos {
            false
        } else if self.scenario.crashes() || self.own_clocks {
            record.day_charged < admitted
        } else {
            record.day_charged != admitted
        };
        if wrong && !(self.scenario.forgets() && self.scenario.crashes()) {
            return Err(format!("{admitted} admitted today, but the record says {record:?}"));
        }
        Ok(())
    }
}
