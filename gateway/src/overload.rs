//! Load shedding: refuses work in a fixed order before memory or connections run out.
//!
//! Four times a second a task compares the process's memory with its limit. From 85 %, idle connections close after
//! five seconds; from 92 %, requests are refused with 503, those of the lowest plans first; from 95 %, no connection is
//! accepted, so that clients wait in the kernel's queue or use another node. Each stage ends two points below its
//! start. Between two checks, new requests may use only the remaining memory, the last third of it only paying plans
//! ([`MemoryBudget`]). The admin listener is not affected.
//!
//! Left to others: counting connections and closing idle ones (the listener's registry, which also does so when four
//! fifths of its slots are taken), and bulkheads (each upstream has its own). Without a limit, configured or of a
//! control group, memory is not checked. If a figure cannot be read, the stage and the memory budget stay.

mod memory;
mod memory_budget;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use chassis::metrics::{self, IntCounterVec, IntGauge, Registry};
use contract::plan::Plan;
use contract::project::ProjectUid;

pub(crate) use self::memory::{Memory, Reading};
pub(crate) use self::memory_budget::{MemoryBudget, Reservation};
use listener::Connections;

/// How often memory is checked.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// Thousandths of the memory at which refusals begin.
const SHEDDING: u64 = 920;

/// Thousandths of the memory at which each stage begins.
const BEGINS: [(Stage, u64); 3] = [(Stage::Pressing, 850), (Stage::Shedding, SHEDDING), (Stage::Closed, 950)];

/// A stage ends this much below its start, so that it does not alternate with every check.
const HYSTERESIS: u64 = 20;

/// Where each plan is refused: one point apart, the cheapest first. Enterprise projects, and the platform's own hosts,
/// are refused only by the last stage and by a lack of memory ([`MemoryBudget`]).
const REFUSED_FROM: [(Plan, u64); 3] = [(Plan::Free, SHEDDING), (Plan::Pro, 930), (Plan::Business, 940)];

contract::words! {
    /// The stage of load shedding.
    #[derive(Default)]
    pub enum Stage {
        /// There is enough memory.
        #[default]
        Calm = "calm",
        /// Idle connections close sooner.
        Pressing = "pressing",
        /// Requests are refused, the lowest plans first.
        Shedding = "shedding",
        /// No connection is accepted.
        Closed = "closed",
    }
}

impl Stage {
    /// The stage at this many thousandths of the memory, after `before`.
    pub(crate) fn judge(thousandths: u64, before: Self) -> Self {
        let reached = |(stage, begins): &(Self, u64)| {
            let needed = if before >= *stage { begins - HYSTERESIS } else { *begins };
            thousandths >= needed
        };
        BEGINS.iter().rev().find(|one| reached(one)).map_or(Self::Calm, |(stage, _)| *stage)
    }
}

/// Whether requests of a project with this plan are refused at this many thousandths during [`Stage::Shedding`]. The
/// lowest plan is refused during the whole stage.
pub(crate) fn refuses(plan: Plan, thousandths: u64, stage: Stage) -> bool {
    if stage < Stage::Shedding {
        return false;
    }
    REFUSED_FROM.iter().any(|(of, from)| *of == plan && (plan == Plan::Free || thousandths >= *from))
}

contract::words! {
    /// The kind of shed work.
    enum Shed {
        /// A request was refused with 503.
        Request = "request",
        /// Connections close as soon as they are idle: counted once per start of the stage.
        Idle = "idle",
        /// Accepting has stopped: counted once per start of the stage.
        Accept = "accept",
    }
}

/// The current stage, shared with its users.
#[derive(Debug)]
pub(crate) struct Overload {
    /// The refused plans, a bit each in the order of [`REFUSED_FROM`].
    refused: AtomicU8,
    budget: Arc<MemoryBudget>,
    stage_shown: IntGauge,
    shed: IntCounterVec,
}

impl Overload {
    /// The first stage, with metrics on `registry`.
    ///
    /// # Errors
    /// If a name is taken: a programming mistake.
    pub(crate) fn new(registry: &Registry) -> anyhow::Result<Self> {
        let shed = metrics::counter_vec(
            registry,
            "edge_shed_total",
            "Effects of memory pressure: refused requests, and how often stages 1 and 3 began.",
            &["reason"],
        )?;
        for reason in Shed::ALL {
            shed.with_label_values(&[reason.as_str()]);
        }
        let stage_shown = metrics::gauge(
            registry,
            "edge_overload_stage",
            "Memory pressure: 0 none; 1 idle connections close sooner; 2 requests are refused; 3 no connection is accepted.",
        )?;
        Ok(Self { refused: AtomicU8::new(0), budget: Arc::default(), stage_shown, shed })
    }

    /// Whether a request of a project with this plan is refused now; counts it if so.
    pub(crate) fn refuses(&self, plan: Plan) -> bool {
        let bits = self.refused.load(Ordering::Relaxed);
        let refused = bits != 0
            && REFUSED_FROM.iter().enumerate().any(|(place, (of, _))| *of == plan && bits & (1 << place) != 0);
        if refused {
            self.count(Shed::Request);
        }
        refused
    }

    /// Reserves memory for another request to a project with this plan, or to the platform's own hosts, that `payer`
    /// pays for; `None` if recent requests may need all that is left for it, which is counted.
    pub(crate) fn reserve(&self, plan: Option<Plan>, payer: Option<&ProjectUid>) -> Option<Reservation> {
        let reserved = self.budget.reserve(plan, payer);
        if reserved.is_none() {
            self.count(Shed::Request);
        }
        reserved
    }

    /// Checks memory until dropped, and sets the pressure on `connections`.
    pub(crate) async fn watch(self: Arc<Self>, memory: Memory, connections: Arc<Connections>) {
        let mut stage = Stage::Calm;
        loop {
            match memory.read() {
                Reading::Limited(memory_use) => {
                    self.budget.record_check(memory_use.left_until(SHEDDING));
                    stage = self.act(memory_use.thousandths(), stage, &connections);
                }
                // Also if there was a limit before: nothing is shed any more.
                Reading::Unlimited => {
                    self.budget.record_check(u64::MAX);
                    stage = self.act(0, stage, &connections);
                }
                Reading::Failed => {}
            }
            tokio::time::sleep(CHECK_EVERY).await;
        }
    }

    /// Sheds load according to this many thousandths of the memory; returns the stage.
    fn act(&self, thousandths: u64, before: Stage, connections: &Connections) -> Stage {
        let stage = Stage::judge(thousandths, before);
        if stage != before {
            tracing::warn!(
                from = before.as_str(),
                to = stage.as_str(),
                thousandths,
                "memory use changed the stage of load shedding; see the runbook EdgeShedding"
            );
        }
        if before < Stage::Pressing && stage >= Stage::Pressing {
            self.count(Shed::Idle);
        }
        if before < Stage::Closed && stage >= Stage::Closed {
            self.count(Shed::Accept);
        }
        connections.set_pressure(stage >= Stage::Pressing);
        connections.pause_accepting(stage >= Stage::Closed);
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

    // promise: faults.21
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
