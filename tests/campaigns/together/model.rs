//! What may be served, counted and said, from what was acknowledged.

use std::collections::BTreeMap;

use crate::broken::{Broken, broken};
use crate::faults::Possible;
use crate::schedule::Schedule;

/// What a client got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// 2xx.
    Served,
    /// An Error body.
    Refused { status: u16, code: String },
    /// No connection, or a failed handshake.
    Closed(String),
    /// Nothing in time.
    Silent,
}

/// What a gateway must do with a request for a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Must {
    Serve,
    Refuse,
    Either,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Key,
    Domain,
    Project,
}

/// A key, domain or project, and what each gateway must do with it.
#[derive(Clone, Debug)]
pub(crate) struct Thing {
    pub(crate) kind: Kind,
    /// The project's name.
    pub(crate) project: String,
    /// The id of the key, or the domain.
    pub(crate) id: String,
    pub(crate) host: String,
    pub(crate) key: Option<String>,
    /// Whether it was granted last; otherwise it was withdrawn.
    pub(crate) is_granted: bool,
    /// Whether the control plane has acknowledged that.
    pub(crate) is_certain: bool,
    pub(crate) at: [Must; 2],
}

/// The acknowledgement of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Acknowledged {
    /// By the control plane, and of a withdrawal by all gateways except these processes.
    Except(Vec<String>),
    /// Whether the change was made is unknown.
    Unknown,
}

impl Thing {
    /// It is being withdrawn, with this acknowledgement.
    pub(crate) fn withdrawn(&mut self, acknowledged: &Acknowledged) {
        self.is_granted = false;
        match acknowledged {
            Acknowledged::Except(lagging) => {
                self.is_certain = true;
                for (number, must) in self.at.iter_mut().enumerate() {
                    let is_lagging =
                        lagging.iter().any(|process| process.starts_with(&format!("gateway-{}/", number + 1)));
                    *must = if is_lagging && *must != Must::Refuse { Must::Either } else { Must::Refuse };
                }
            }
            Acknowledged::Unknown => {
                self.is_certain = false;
                self.at = self.at.map(|must| if must == Must::Serve { Must::Either } else { must });
            }
        }
    }

    /// It is being granted again. Gateways learn of it later.
    pub(crate) fn granted(&mut self, acknowledged: &Acknowledged) {
        self.is_granted = true;
        self.is_certain = *acknowledged != Acknowledged::Unknown;
        self.at = self.at.map(|must| if must == Must::Refuse { Must::Either } else { must });
    }

    /// A gateway has lost its replica, or must not use it before it has reached the control plane.
    pub(crate) fn forgotten_by(&mut self, gateway: usize) {
        if self.at[gateway] == Must::Serve {
            self.at[gateway] = Must::Either;
        }
    }

    /// Compares a gateway's answer with the model, and learns from it. `is_whole`: the gateway has its replica.
    pub(crate) fn judge(&mut self, gateway: usize, answer: &Answer, is_whole: bool) -> Result<(), Broken> {
        let must = self.at[gateway];
        let wrong = |promise| {
            let details =
                format!("gateway-{} {:?} {} of {}: {answer:?}", gateway + 1, self.kind, self.id, self.project);
            broken(promise, details)
        };
        if *answer == Answer::Served {
            if must == Must::Refuse {
                return wrong("what was withdrawn is not served");
            }
            if self.is_granted {
                self.at[gateway] = Must::Serve;
            }
            return Ok(());
        }
        if must == Must::Serve {
            return wrong("what was granted is served");
        }
        let is_refusal = match (self.kind, answer) {
            (Kind::Key, Answer::Refused { code, .. }) => code == "invalid_api_key",
            (Kind::Domain, Answer::Refused { code, .. }) => code == "unknown_host" || code == "misdirected_request",
            (Kind::Domain, Answer::Closed(_)) => true,
            (Kind::Project, Answer::Refused { code, .. }) => code == "project_suspended",
            _ => false,
        };
        let is_start = match answer {
            Answer::Refused { code, .. } => code == "starting" || code == "quota_unavailable" || code == "unknown_host",
            Answer::Closed(_) => true,
            _ => false,
        };
        if is_refusal && is_whole && !self.is_granted {
            // For good: the gateway has the change.
            self.at[gateway] = Must::Refuse;
        }
        if is_refusal || (is_start && !is_whole) {
            Ok(())
        } else {
            wrong("only what was withdrawn, or a start, is a reason not to serve")
        }
    }
}

/// Units that a project has spent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spent {
    /// Admitted requests by minute of the quota.
    pub(crate) minutes: BTreeMap<i64, u64>,
    pub(crate) admitted: u64,
    /// Requests without an answer.
    pub(crate) unknown: u64,
}

/// How many times its limit a project may have spent in one window, by docs/develop/decisions/quota-ledger.md.
pub(crate) fn times_the_limit(schedule: &Schedule) -> u64 {
    let outage = schedule.has(Possible::is_outage);
    let restarted = schedule.has(|what| what.gateway_restarted().is_some());
    let emptied = schedule.has(Possible::empties_store);
    let apart = schedule.has(|what| what.gateway_down().is_some()) || schedule.has(is_store_link);
    // An outage: each gateway has its share, beside what was granted before. A gateway that is killed meanwhile may spend
    // its share of the last second again, one with an empty directory all of it. A store that lost its data while a
    // gateway cannot repeat its figures grants that gateway's units once more.
    1 + u64::from(outage) + u64::from(outage && restarted) + u64::from(emptied && apart)
}

/// Whether the store may know fewer units than were admitted.
pub(crate) fn may_lose_units(schedule: &Schedule) -> bool {
    let outage = schedule.has(Possible::is_outage);
    let restarted = schedule.has(|what| what.gateway_restarted().is_some());
    let emptied = schedule.has(Possible::empties_store);
    let apart = schedule.has(|what| what.gateway_down().is_some()) || schedule.has(is_store_link);
    (outage && restarted) || (emptied && apart)
}

fn is_store_link(what: &Possible) -> bool {
    matches!(what.part, crate::faults::Part::StoreLink(_))
}

impl Spent {
    /// No window has more than it may.
    pub(crate) fn judge(&self, schedule: &Schedule, per_minute: u64, per_day: Option<u64>) -> Result<(), Broken> {
        let times = times_the_limit(schedule);
        for (minute, admitted) in &self.minutes {
            if *admitted > times * per_minute {
                let details = format!("{admitted} of {times} times {per_minute} units in minute {minute}");
                return broken("a minute has no more units than it may", details);
            }
        }
        match per_day {
            Some(per_day) if self.admitted > times * per_day => broken(
                "a day has no more units than it may",
                format!("{} of {times} times {per_day} units", self.admitted),
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Thing {
        Thing {
            kind: Kind::Key,
            project: "p".to_owned(),
            id: "k".to_owned(),
            host: "p.example".to_owned(),
            key: None,
            is_granted: true,
            is_certain: true,
            at: [Must::Serve; 2],
        }
    }

    fn refused(code: &str) -> Answer {
        Answer::Refused { status: 401, code: code.to_owned() }
    }

    #[test]
    fn a_granted_key_is_served_and_a_revoked_one_is_not() {
        let mut thing = key();
        assert!(thing.judge(0, &Answer::Served, true).is_ok());
        assert!(thing.judge(0, &refused("invalid_api_key"), true).is_err());
        thing.withdrawn(&Acknowledged::Except(vec!["gateway-2/gw-x".to_owned()]));
        assert_eq!(thing.at, [Must::Refuse, Must::Either]);
        assert!(thing.judge(0, &Answer::Served, true).is_err());
        assert!(thing.judge(1, &Answer::Served, true).is_ok());
        assert!(thing.judge(1, &refused("starting"), false).is_ok());
        assert!(thing.judge(1, &refused("starting"), true).is_err());
        assert!(thing.judge(1, &refused("internal_error"), false).is_err());
        assert!(thing.judge(1, &Answer::Silent, false).is_err());
        // It has the change.
        assert!(thing.judge(1, &refused("invalid_api_key"), true).is_ok());
        assert!(thing.judge(1, &Answer::Served, true).is_err());
    }

    #[test]
    fn an_unknown_outcome_allows_both_and_a_lost_replica_allows_a_start() {
        let mut thing = key();
        thing.forgotten_by(0);
        assert!(thing.judge(0, &refused("starting"), false).is_ok());
        assert!(thing.judge(0, &Answer::Served, true).is_ok());
        assert!(thing.judge(0, &refused("starting"), false).is_err());
        thing.withdrawn(&Acknowledged::Unknown);
        assert!(!thing.is_certain);
        assert!(thing.judge(0, &Answer::Served, true).is_ok());
        assert!(thing.judge(0, &refused("invalid_api_key"), true).is_ok());
        assert!(thing.judge(0, &Answer::Served, true).is_err());
    }

    #[test]
    fn bounds_are_those_of_the_documentation() {
        let times = |faults: &str| times_the_limit(&format!("{faults} | read read").parse().unwrap());
        assert_eq!(times("resolver.kill@0-1 clock-1.ahead@0-1"), 1);
        assert_eq!(times("gateway-1.kill@0-1 control.kill@0-1"), 1);
        assert_eq!(times("store.wipe@0-1 control.stop@0-1"), 1);
        assert_eq!(times("store-link-2.slow@0-1"), 1);
        assert_eq!(times("store.stop@0-1"), 2);
        assert_eq!(times("store-link-1.cut@0-1 gateway-2.kill@0-1"), 3);
        assert_eq!(times("store.kill@0-1 gateway-2.kill@0-1"), 4);
        let spent = Spent { minutes: BTreeMap::from([(1, 20), (2, 21)]), admitted: 41, unknown: 0 };
        let schedule = "control.kill@0-1 | spend".parse().unwrap();
        assert!(spent.judge(&schedule, 21, Some(41)).is_ok());
        assert!(spent.judge(&schedule, 20, Some(41)).is_err());
        assert!(spent.judge(&schedule, 21, Some(40)).is_err());
    }
}
