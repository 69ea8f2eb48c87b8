//! Schedules: which faults, from which operation to which, drawn from a seed, written as text, and shrunk.

use std::fmt;
use std::str::FromStr;

use crate::faults::{POSSIBLE, Possible};
use crate::random::Random;

/// A step of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    CreateKey,
    RevokeKey,
    /// A name with a certificate of the local authority.
    AddDomain,
    /// A name that is verified with DNS and gets its certificate over ACME.
    AddVerifiedDomain,
    RemoveDomain,
    Suspend,
    Resume,
    /// Other units per minute for the project that spends.
    Limit,
    /// Twice the units of a minute, at all gateways that run.
    Spend,
    /// Each key, domain and project at each gateway.
    Read,
    /// `tollhouse status` names every fault.
    Status,
}

const OPERATIONS: &[(&str, Operation)] = &[
    ("create-key", Operation::CreateKey),
    ("revoke-key", Operation::RevokeKey),
    ("add-domain", Operation::AddDomain),
    ("add-verified-domain", Operation::AddVerifiedDomain),
    ("remove-domain", Operation::RemoveDomain),
    ("suspend", Operation::Suspend),
    ("resume", Operation::Resume),
    ("limit", Operation::Limit),
    ("spend", Operation::Spend),
    ("read", Operation::Read),
    ("status", Operation::Status),
];

/// Reading and spending come more often.
const OFTEN: [Operation; 4] = [Operation::Read, Operation::Read, Operation::Spend, Operation::Spend];

/// A fault that lasts from before one operation until before another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) what: &'static Possible,
    pub(crate) from: usize,
    pub(crate) until: usize,
}

/// A run: its text is `FAULT@FROM-UNTIL … | OPERATION …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) faults: Vec<Fault>,
    pub(crate) operations: Vec<Operation>,
}

impl Schedule {
    /// Two or three faults of different parts, and four to seven operations.
    pub(crate) fn draw(seed: u64, is_root: bool) -> Self {
        let mut random = Random::new(seed);
        let mut below = |bound: usize| usize::try_from(random.number() % bound.max(1) as u64).unwrap();
        let operations: Vec<Operation> = (0..4 + below(4))
            .map(|_| {
                let number = below(OPERATIONS.len() + OFTEN.len());
                OPERATIONS.get(number).map_or_else(|| OFTEN[number - OPERATIONS.len()], |(_, operation)| *operation)
            })
            .collect();
        let mut faults: Vec<Fault> = Vec::new();
        let count = 2 + below(2);
        while faults.len() < count {
            let what = &POSSIBLE[below(POSSIBLE.len())];
            if faults.iter().any(|fault| fault.what.part == what.part) || (what.needs_root() && !is_root) {
                continue;
            }
            let from = below(operations.len());
            let until = from + 1 + below(operations.len() - from);
            faults.push(Fault { what, from, until });
        }
        Self { faults, operations }
    }

    /// Every schedule with one fault or one operation less.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for number in 0..self.faults.len() {
            let mut smaller = self.clone();
            smaller.faults.remove(number);
            all.push(smaller);
        }
        for number in 0..self.operations.len() {
            let mut smaller = self.clone();
            smaller.operations.remove(number);
            for fault in &mut smaller.faults {
                fault.from -= usize::from(fault.from > number);
                fault.until -= usize::from(fault.until > number);
            }
            // A fault that lasted for this operation alone.
            smaller.faults.retain(|fault| fault.from < fault.until);
            all.push(smaller);
        }
        all
    }

    /// Whether one of the faults is of this kind.
    pub(crate) fn has(&self, is: impl Fn(&Possible) -> bool) -> bool {
        self.faults.iter().any(|fault| is(fault.what))
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Fault { what, from, until } in &self.faults {
            write!(f, "{}@{from}-{until} ", what.name)?;
        }
        f.write_str("|")?;
        for operation in &self.operations {
            let name = OPERATIONS.iter().find(|(_, one)| one == operation).map(|(name, _)| *name);
            write!(f, " {}", name.unwrap())?;
        }
        Ok(())
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (faults, operations) = text.split_once('|').ok_or("a schedule has a | between faults and operations")?;
        let fault = |text: &str| {
            let (name, times) = text.split_once('@')?;
            let (from, until) = times.split_once('-')?;
            let what = POSSIBLE.iter().find(|one| one.name == name)?;
            Some(Fault { what, from: from.parse().ok()?, until: until.parse().ok()? })
        };
        let operation = |text: &str| OPERATIONS.iter().find(|(name, _)| *name == text).map(|(_, operation)| *operation);
        let unknown = |text: &str| format!("{text:?} is no fault and no operation");
        Ok(Self {
            faults: faults.split_whitespace().map(|text| fault(text).ok_or(unknown(text))).collect::<Result<_, _>>()?,
            operations: operations
                .split_whitespace()
                .map(|text| operation(text).ok_or(unknown(text)))
                .collect::<Result<_, _>>()?,
        })
    }
}

#[test]
fn a_schedule_is_drawn_from_its_seed_and_read_from_its_text() {
    for seed in 0..500 {
        let schedule = Schedule::draw(seed, true);
        assert_eq!(schedule, Schedule::draw(seed, true));
        assert_eq!(schedule.to_string().parse(), Ok(schedule.clone()));
        assert!((2..=3).contains(&schedule.faults.len()) && (4..=7).contains(&schedule.operations.len()), "{schedule}");
        for smaller in schedule.smaller() {
            assert!(
                smaller.faults.len() + smaller.operations.len() < schedule.faults.len() + schedule.operations.len()
            );
            assert!(
                smaller.faults.iter().all(|fault| fault.until <= smaller.operations.len()),
                "{schedule}: {smaller}"
            );
        }
        assert!(!Schedule::draw(seed, false).has(Possible::needs_root), "{seed}");
    }
}

#[test]
fn every_fault_and_operation_is_drawn() {
    let drawn: Vec<Schedule> = (0..2_000).map(|seed| Schedule::draw(seed, true)).collect();
    for possible in POSSIBLE {
        assert!(drawn.iter().any(|schedule| schedule.has(|what| what == possible)), "{}", possible.name);
    }
    for (name, operation) in OPERATIONS {
        assert!(drawn.iter().any(|schedule| schedule.operations.contains(operation)), "{name}");
    }
}
