//! What the gateway gives up, and in which order, before memory or connections run out.
//!
//! Four times a second a task compares the memory that is the process's own with what it may have. From 85 % on, idle
//! connections go after five seconds; from 92 % on, requests are refused with 503, those of the lowest plans first; from
//! 95 % on, no connection is accepted, so that they wait in the kernel's queue or find another node. Each stage ends two
//! points below where it begins. What begins between two looks is held to the memory that is left for it, its last
//! third for those that pay ([`Room`]). The admin listener is no part of this: it always answers.
//!
//! Left to others: counting connections and closing idle ones (the door's registry, which also presses when four fifths
//! of its places are taken), and bulkheads (each upstream has its own). Without a limit, stated or of a control group,
//! memory is not watched. A figure that cannot be read leaves the stage, and what may begin, as they were.

mod memory;
mod room;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use chassis::metrics::{self, IntCounterVec, IntGauge, Registry};
use contract::plan::Plan;
use contract::project::ProjectUid;

pub(crate) use self::memory::{Look, Memory};
pub(crate) use self::room::{Reservation, Room};
use listener::Connections;

/// How often the memory is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Thousandths of the memory at which requests begin to be refused.
const SHEDDING: u64 = 920;

/// Thousandths of the memory at which a stage begins.
const BEGINS: [(Stage, u64); 3] = [(Stage::Pressing, 850), (Stage::Shedding, SHEDDING), (Stage::Closed, 950)];

/// A stage ends this much below where it begins, so that it does not come and go with every look.
const HYSTERESIS: u64 = 20;

/// Where each plan is refused: a point apart, the one that pays least first. Enterprise projects, and the platform's own
/// hosts, are refused by nothing but the last stage and the want of [`Room`].
const REFUSED_FROM: [(Plan, u64); 3] = [(Plan::Free, SHEDDING), (Plan::Pro, 930), (Plan::Business, 940)];

contract::words! {
    /// How far it has come.
    #[derive(Default)]
    pub enum Stage {
        /// There is room.
        #[default]
        Calm = "calm",
        /// Idle connections go sooner.
        Pressing = "pressing",
        /// Requests are refused, the lowest plans first.
        Shedding = "shedding",
        /// No connection is accepted.
        Closed = "closed",
    }
}

impl Stage {
    /// The stage for this many thousandths of the memory, after `before`.
    pub(crate) fn judge(thousandths: u64, before: Self) -> Self {
        let reached = |(stage, begins): &(Self, u64)| {
            let needed = if before >= *stage { begins - HYSTERESIS } else { *begins };
            thousandths >= needed
        };
        BEGINS.iter().rev().find(|one| reached(one)).map_or(Self::Calm, |(stage, _)| *stage)
    }
}

/// Whether requests of a project with this plan are refused at this many thousandths while [`Stage::Shedding`] lasts.
/// The lowest plan goes with the stage itself.
pub(crate) fn refuses(plan: Plan, thousandths: u64, stage: Stage) -> bool {
    if stage < Stage::Shedding {
        return false;
    }
    REFUSED_FROM.iter().any(|(of, from)| *of == plan && (plan == Plan::Free || thousandths >= *from))
}

contract::words! {
    /// What was given up.
    enum Shed {
        /// A request was refused with 503.
        Request = "request",
        /// Connections were told to leave as soon as they idle: counted once per time the stage begins.
        Idle = "idle",
        /// Accepting was stopped: counted once per time the stage begins.
        Accept = "accept",
    }
}

/// The present stage, for whoever has to act by it.
#[derive(Debug)]
pub(crate) struct Overload {
    /// Which plans are refused, a bit each in the order of [`REFUSED_FROM`].
    refused: AtomicU8,
    room: Arc<Room>,
    stage_shown: IntGauge,
    shed: IntCounterVec,
}

impl Overload {
    /// Calm, with its metrics on `registry`.
    ///
    /// # Errors
    /// When a name is taken, which is a mistake of the program.
    pub(crate) fn new(registry: &Registry) -> anyhow::Result<Self> {
        let shed = metrics::counter_vec(
            registry,
            "edge_shed_total",
            "What was given up for want of memory: requests refused, times idle connections were pressed, times accepting stopped.",
            &["reason"],
        )?;
        for reason in Shed::ALL {
            shed.with_label_values(&[reason.as_str()]);
        }
        let stage_shown = metrics::gauge(
            registry,
            "edge_overload_stage",
            "0: there is memory; 1: idle connections go sooner; 2: requests are refused, lowest plans first; 3: no connection is accepted.",
        )?;
        Ok(Self { refused: AtomicU8::new(0), room: Arc::default(), stage_shown, shed })
    }

    /// Whether a request of a project with this plan is refused now; if so, that is counted.
    pub(crate) fn refuses(&self, plan: Plan) -> bool {
        let bits = self.refused.load(Ordering::Relaxed);
        let refused = bits != 0
            && REFUSED_FROM.iter().enumerate().any(|(place, (of, _))| *of == plan && bits & (1 << place) != 0);
        if refused {
            self.count(Shed::Request);
        }
        refused
    }

    /// Memory for one more request to a project with this plan, or to the platform's own hosts, that `payer` pays for;
    /// `None`, which is counted, when those that have just begun may need all that is left for it.
    pub(crate) fn enter(&self, plan: Option<Plan>, payer: Option<&ProjectUid>) -> Option<Reservation> {
        let entered = self.room.enter(plan, payer);
        if entered.is_none() {
            self.count(Shed::Request);
        }
        entered
    }

    /// Looks at the memory until dropped, and presses `connections` by what it finds.
    pub(crate) async fn watch(self: Arc<Self>, memory: Memory, connections: Arc<Connections>) {
        let mut stage = Stage::Calm;
        loop {
            match memory.look() {
                Look::Seen(seen) => {
                    self.room.looked(seen.left_until(SHEDDING));
                    stage = self.act(seen.thousandths(), stage, &connections);
                }
                // Also when there was a limit before: nothing is given up any more.
                Look::Unlimited => {
                    self.room.looked(u64::MAX);
                    stage = self.act(0, stage, &connections);
                }
                Look::InVain => {}
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Gives up what is to be given up at this many thousandths of the memory; the stage that this is.
    fn act(&self, thousandths: u64, before: Stage, connections: &Connections) -> Stage {
        let stage = Stage::judge(thousandths, before);
        if stage != before {
            tracing::warn!(
                from = before.as_str(),
                to = stage.as_str(),
                thousandths,
                "the memory that is left asks for another stage"
            );
        }
        if before < Stage::Pressing && stage >= Stage::Pressing {
            self.count(Shed::Idle);
        }
        if before < Stage::Closed && stage >= Stage::Closed {
            self.count(Shed::Accept);
        }
        connections.press(stage >= Stage::Pressing);
        connections.hold_newcomers(stage >= Stage::Closed);
        self.show(thousandths, stage);
        stage
    }

    fn show(&self, thousandths: u64, stage: Stage) {
        let bit = |(place, (plan, _)): (usize, &(Plan, u64))| u8::from(refuses(*plan, thousandths, stage)) << place;
        self.refused.store(REFUSED_FROM.iter().enumerate().map(bit).sum(), Ordering::Relaxed);
        self.stage_shown.set(stage as i64);
    }

    fn count(&self, what: Shed) {
        self.shed.with_label_values(&[what.as_str()]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_begin_in_order_and_end_two_points_lower() {
        let begins = |thousandths| Stage::judge(thousandths, Stage::Calm);
        assert_eq!([0, 849, 850, 919].map(begins), [Stage::Calm, Stage::Calm, Stage::Pressing, Stage::Pressing]);
        assert_eq!(
            [920, 949, 950, 2_000].map(begins),
            [Stage::Shedding, Stage::Shedding, Stage::Closed, Stage::Closed]
        );
        let ends = |thousandths| Stage::judge(thousandths, Stage::Closed);
        assert_eq!([930, 929, 900, 899].map(ends), [Stage::Closed, Stage::Shedding, Stage::Shedding, Stage::Pressing]);
        assert_eq!([830, 829].map(ends), [Stage::Pressing, Stage::Calm]);
        assert_eq!(Stage::judge(910, Stage::Pressing), Stage::Pressing, "a higher stage has to be reached");
    }

    #[test]
    fn lower_plans_are_refused_first_and_the_highest_not_at_all() {
        let overload = Overload::new(&Registry::new()).unwrap();
        let refused = |thousandths: u64, before: Stage| {
            overload.show(thousandths, Stage::judge(thousandths, before));
            Plan::ALL.iter().filter(|plan| overload.refuses(**plan)).map(|plan| plan.as_str()).collect::<Vec<_>>()
        };
        assert!(refused(919, Stage::Calm).is_empty());
        assert_eq!(refused(920, Stage::Calm), ["free"]);
        assert_eq!(refused(935, Stage::Calm), ["free", "pro"]);
        assert_eq!(refused(1_000, Stage::Calm), ["free", "pro", "business"]);
        assert_eq!(refused(905, Stage::Shedding), ["free"], "until the stage ends");
        assert!(refused(899, Stage::Shedding).is_empty());
        assert_eq!(overload.shed.with_label_values(&["request"]).get(), 7);
    }
}
