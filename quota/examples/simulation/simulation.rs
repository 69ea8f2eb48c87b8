//! A world of gateway nodes, one quota store and a network between them, in virtual time and from one seed.
//!
//! Nodes and store are the real state machines of `quota::ledger`. Everything around them is simulated: clocks;
//! messages that are lost, delayed, duplicated and reordered; a store that stalls, loses data, fails over and has a
//! wrong clock; nodes that crash. The same seed gives the same world to the microsecond.
//!
//! [`audit`] has the promises, [`scenario`] the possible events.

mod audit;
mod node;
mod random;
mod scenario;
mod store;
mod world;

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use scenario::Scenario;

/// Counts of a run, which show that something happened.
#[derive(Default)]
pub(crate) struct Summary {
    worlds: u64,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    unavailable: u64,
    statements: u64,
    learning: u64,
    degraded: u64,
}

impl Summary {
    /// Adds another run.
    pub(crate) fn add(&mut self, other: &Self) {
        self.worlds += other.worlds;
        self.admitted += other.admitted;
        self.refused += other.refused;
        self.unavailable += other.unavailable;
        self.statements += other.statements;
        self.learning += other.learning;
        self.degraded += other.degraded;
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} worlds: {} admitted ({} without the store), {} refused, {} unavailable, {} statements, {} answered while \
             learning",
            self.worlds, self.admitted, self.degraded, self.refused, self.unavailable, self.statements, self.learning
        )
    }
}

/// A broken promise.
pub(crate) struct Broken {
    seed: u64,
    promise: String,
    scenario: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {}\n{}\nreplay: cargo run -p quota --example simulation -- --seed {}",
            self.seed, self.promise, self.scenario, self.seed
        )
    }
}

/// Runs the worlds of many seeds on all cores; stops at the first that breaks a promise.
pub(crate) fn run_all(seeds: RangeInclusive<u64>) -> Result<Summary, Broken> {
    let workers = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let stop = AtomicBool::new(false);
    let work = |first: usize| {
        let mut total = Summary::default();
        for seed in seeds.clone().skip(first).step_by(workers) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            total.add(&run(seed).inspect_err(|_| stop.store(true, Ordering::Relaxed))?);
        }
        Ok(total)
    };
    thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> = (0..workers).map(|first| scope.spawn(move || work(first))).collect();
        let mut total = Summary::default();
        for worker in started {
            match worker.join() {
                Ok(part) => total.add(&part?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(total)
    })
}

/// Runs worlds with `nodes` nodes.
pub(crate) fn run_fleets(seeds: RangeInclusive<u64>, nodes: usize) -> Result<Summary, Broken> {
    let mut total = Summary::default();
    for seed in seeds {
        total.add(&check(seed, &Scenario::of_a_fleet(seed, nodes))?);
    }
    Ok(total)
}

/// Runs the world of a seed and checks every promise.
fn run(seed: u64) -> Result<Summary, Broken> {
    check(seed, &Scenario::from_seed(seed))
}

fn check(seed: u64, scenario: &Scenario) -> Result<Summary, Broken> {
    world::World::new(scenario).run().map_err(|promise| Broken { seed, promise, scenario: format!("{scenario:#?}") })
}
