//! The possible events of a world, and the promises that must hold in it.

use contract::plan::{Limits, Plan};

use super::random::Random;

/// Microseconds of virtual time.
pub(super) type Micros = u64;
/// One second of virtual time.
pub(super) const SECOND: Micros = 1_000_000;

/// How rough the world is. Each kind must keep the strongest promises that are possible in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Messages take a while and overtake each other; nothing is lost.
    #[default]
    Calm,
    /// Messages are lost, duplicated and replayed late; nodes crash and restart. Without the store, nodes deny.
    Lossy,
    /// The store stalls, and single nodes are cut off. Without the store, nodes share.
    Outage,
    /// The store empties or fails over to a copy that lags and whose clock is wrong; the network is sound.
    Forgetful,
    /// All of them together.
    Chaos,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The store executes nothing for this long, then everything that has arrived.
    Stall(Micros),
    /// The store loses all data.
    Empty,
    /// A replica takes over that lacks the writes of the last so many microseconds; its clock is off by so many
    /// milliseconds.
    Failover(Micros, i64),
    /// The node dies, and another process takes its place this much later.
    Crash(usize, Micros),
    /// The node and the store cannot reach each other for this long.
    Cut(usize, Micros),
    /// The node's wall clock jumps by so many milliseconds.
    Step(usize, i64),
    /// The project changes to a plan with these limits.
    Limits(Limits),
}

/// Everything about a world that is decided in advance.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) random: Random,
    pub(super) kind: Kind,
    pub(super) nodes: usize,
    pub(super) limits: Limits,
    /// The store's clock at the beginning, in Unix milliseconds.
    pub(super) starts_at: i64,
    /// How long requests arrive.
    pub(super) lasts: Micros,
    /// Requests per minute over all nodes, and how many of a thousand arrivals are bursts.
    pub(super) demand: u64,
    pub(super) bursts: u64,
    /// The usual longest delay of a message.
    pub(super) delay_max: Micros,
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) late: u64,
    pub(super) faults: Vec<(Micros, Fault)>,
}

/// Midnight UTC between 14 and 15 November 2023, in milliseconds.
const MIDNIGHT: i64 = 1_700_006_400_000;

impl Scenario {
    /// The scenario of a seed.
    pub(super) fn from_seed(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let kind = random.pick(&[Kind::Calm, Kind::Lossy, Kind::Outage, Kind::Forgetful, Kind::Chaos]);
        let nodes = random.pick(&[1, 2, 3, 3, 5]);
        let per_minute = random.pick(&[1_u32, 2, 7, 20, 60, 60, 150]);
        let per_day = if random.chance(400) { per_minute * 2 + per_minute / 3 } else { per_minute * 1_000 };
        let limits = Limits::new(per_minute, per_day).unwrap_or(Plan::Free.stated_limits());
        let lasts = if random.chance(100) { random.between(100, 240) } else { random.between(30, 90) } * SECOND;
        let before_midnight = i64::try_from(random.between(0, 90_000)).unwrap_or(0);
        let rough = matches!(kind, Kind::Lossy | Kind::Chaos);
        let mut scenario = Self {
            kind,
            nodes,
            limits,
            starts_at: MIDNIGHT - before_midnight,
            lasts,
            demand: u64::from(per_minute) * random.between(5, 30) / 10 + 5,
            bursts: random.pick(&[0, 20, 200]),
            delay_max: random.pick(&[300, 2_000, 15_000]),
            lost: if rough { random.pick(&[0, 10, 200]) } else { 0 },
            duplicated: if rough { random.pick(&[0, 50, 300]) } else { 0 },
            late: if rough { random.pick(&[0, 20]) } else { 0 },
            faults: Vec::new(),
            random: random.clone(),
        };
        scenario.misfortunes(&mut random);
        scenario.random = random;
        scenario
    }

    /// A fleet of `nodes` nodes; in every other world some of them die and return.
    pub(super) fn of_a_fleet(seed: u64, nodes: usize) -> Self {
        let mut scenario = Self::from_seed(seed);
        let mut random = scenario.random.clone();
        let rough = seed % 2 == 1;
        scenario.kind = if rough { Kind::Lossy } else { Kind::Calm };
        scenario.nodes = nodes;
        scenario.limits = Limits::new(600, 100_000).unwrap_or(scenario.limits);
        scenario.lasts = random.between(10, 20) * SECOND;
        scenario.demand = random.between(3_000, 9_000);
        scenario.delay_max = 2_000;
        (scenario.lost, scenario.duplicated, scenario.late) = if rough { (20, 50, 10) } else { (0, 0, 0) };
        scenario.faults.clear();
        let deaths = if rough { nodes / 4 } else { 0 };
        for _ in 0..deaths {
            let node = usize::try_from(random.number() % (nodes as u64)).unwrap_or(0);
            let pause = random.between(SECOND / 100, 5 * SECOND);
            scenario.faults.push((random.between(0, scenario.lasts), Fault::Crash(node, pause)));
        }
        scenario.faults.sort_by_key(|(at, _)| *at);
        scenario.random = random;
        scenario
    }

    fn misfortunes(&mut self, random: &mut Random) {
        let count = if self.kind == Kind::Calm { 0 } else { random.between(1, 4) };
        for _ in 0..count {
            let at = random.between(0, self.lasts);
            let node = usize::try_from(random.number() % (self.nodes as u64)).unwrap_or(0);
            let fault = match self.kind {
                Kind::Calm => continue,
                Kind::Lossy => Fault::Crash(node, random.between(SECOND / 100, 5 * SECOND)),
                Kind::Outage => outage(random, node, self.lasts - at),
                Kind::Forgetful => forgetfulness(random, 90_000),
                Kind::Chaos => match random.between(0, 3) {
                    0 => Fault::Crash(node, random.between(0, 5 * SECOND)),
                    1 => outage(random, node, self.lasts - at),
                    2 => forgetfulness(random, 7_200_000),
                    _ => Fault::Limits(
                        Limits::new(u32::try_from(random.between(1, 100)).unwrap_or(1), 500).unwrap_or(self.limits),
                    ),
                },
            };
            self.faults.push((at, fault));
        }
        if matches!(self.kind, Kind::Outage | Kind::Chaos) {
            self.step_clocks(random);
        }
        self.faults.sort_by_key(|(at, _)| *at);
        // Two losses of memory within one learning period break all promises except those of rough worlds.
        if self.kind == Kind::Forgetful {
            let mut last = 0;
            self.faults.retain(|(at, _)| {
                let apart = last == 0 || at.saturating_sub(last) > 2 * SECOND;
                last = if apart { *at } else { last };
                apart
            });
        }
    }

    /// Clocks of nodes jump at any time.
    fn step_clocks(&mut self, random: &mut Random) {
        for node in 0..self.nodes {
            for _ in 0..random.between(0, 2) {
                let by = i64::try_from(random.between(0, 400_000)).unwrap_or(0) - 200_000;
                self.faults.push((random.between(0, self.lasts), Fault::Step(node, by)));
            }
        }
    }

    /// Whether the store ever loses data or its clock.
    pub(super) fn forgets(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Empty | Fault::Failover(..)))
    }

    /// Whether a node ever dies.
    pub(super) fn crashes(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Crash(..)))
    }
}

/// A stall or a cut that ends before the requests do.
fn outage(random: &mut Random, node: usize, longest: Micros) -> Fault {
    let lasts = if random.chance(300) { random.between(60, 100) } else { random.between(0, 20) } * SECOND + 70_000;
    let lasts = lasts.min(longest);
    if random.chance(600) { Fault::Stall(lasts) } else { Fault::Cut(node, lasts) }
}

fn forgetfulness(random: &mut Random, clock_off_max: u64) -> Fault {
    let off =
        i64::try_from(random.between(0, 2 * clock_off_max)).unwrap_or(0) - i64::try_from(clock_off_max).unwrap_or(0);
    let off = if random.chance(500) { 0 } else { off };
    if random.chance(400) { Fault::Empty } else { Fault::Failover(random.between(0, SECOND), off) }
}
