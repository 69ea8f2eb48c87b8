//! What DNS facts mean for a domain: pass, wait, or exactly what is wrong.
//!
//! Pure. A nameserver that could not be asked is unknown, never wrong.

mod explain;
mod server;

use std::net::IpAddr;

use contract::hostname::Hostname;
use serde::{Deserialize, Serialize};

use super::caa::{CaaIdentity, CaaRuling, rule};
use super::facts::{Answer, DnsFacts, Why, Zone};
use crate::TEXT_LABEL;
use crate::problem::{Problem, ProblemCode};
pub use server::ServerVerdict;

/// What must be seen.
pub struct Expectation<'a> {
    /// The domain.
    pub name: &'a Hostname,
    /// The project's CNAME target.
    pub target: &'a Hostname,
    /// Addresses of the edge, for an apex.
    pub edge: &'a [IpAddr],
    /// The text that proves ownership.
    pub text: &'a str,
    /// What is known of the ownership before.
    pub claim: Claim,
    /// The authorities certificates can come from, best first. Empty: CAA does not matter.
    pub authorities: &'a [CaaIdentity],
}

/// What is known of a name's ownership before DNS is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// The project holds the name and it is served: it was proven, and its records have led to us ever since.
    Proven,
    /// Nobody else has it. A record that only this project has proves it; addresses do not, because all projects share
    /// those of the edge.
    Open,
    /// Another project has it, or had it: the text proves it, whatever the records.
    Contested,
}

impl Claim {
    /// Whether the ownership text may matter for a name that is the apex of its zone, or is not.
    pub fn may_ask_for_text(self, is_apex: bool) -> bool {
        self == Self::Contested || (self == Self::Open && is_apex)
    }
}

/// Whether the records lead to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// At every nameserver that answered.
    Pass,
    /// At some of them.
    Partial,
    /// There are none.
    Missing,
    /// They lead elsewhere.
    Wrong,
    /// Nobody answered.
    Unknown,
}

/// Whether the name belongs to the project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// It does.
    Held,
    /// The proof is not there.
    Missing,
    /// DNS did not say.
    Unknown,
}

/// Whether a certificate may be issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caa {
    /// At least one of our authorities may issue.
    Allowed,
    /// None of them may.
    Forbidden,
    /// DNS did not say.
    Unknown,
}

/// The state of one record a customer was asked to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordState {
    /// At every nameserver that answered.
    Ok,
    /// At none.
    Missing,
    /// It says something else.
    Wrong,
    /// At some nameservers.
    Partial,
    /// No nameserver answered.
    Unknown,
}

/// What the facts mean.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// Whether the records lead to us.
    pub records: Records,
    /// Whether the name belongs to the project.
    pub ownership: Ownership,
    /// Whether a certificate may be issued.
    pub caa: Caa,
    /// Whether the name is the apex of its zone; unknown where the zone is.
    pub is_apex: Option<bool>,
    /// What is wrong, worst first.
    pub problems: Vec<Problem>,
    /// The state of the ownership text, when one was asked for.
    pub txt: Option<RecordState>,
    /// The authorities that may issue, best first, with the methods they may use.
    pub permitted: Vec<(String, Vec<String>)>,
}

impl Judgement {
    /// Records, ownership and CAA all pass: a certificate may be ordered.
    pub fn passes(&self) -> bool {
        self.records == Records::Pass && self.ownership == Ownership::Held && self.caa == Caa::Allowed
    }

    /// For a name that always means this machine: there is nothing to ask.
    pub fn local(contested: bool) -> Self {
        let ownership = if contested { Ownership::Missing } else { Ownership::Held };
        Self {
            records: Records::Pass,
            ownership,
            caa: Caa::Allowed,
            is_apex: Some(false),
            problems: if contested { vec![explain::local_taken()] } else { Vec::new() },
            txt: None,
            permitted: Vec::new(),
        }
    }

    /// The state of the record that leads to us.
    pub fn record_state(&self) -> RecordState {
        match self.records {
            Records::Pass => RecordState::Ok,
            Records::Partial => RecordState::Partial,
            Records::Missing => RecordState::Missing,
            Records::Wrong => RecordState::Wrong,
            Records::Unknown => RecordState::Unknown,
        }
    }
}

/// The last look at DNS, as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checks {
    /// Milliseconds since the epoch; RFC 3339 on the wire.
    pub at_ms: i64,
    /// Milliseconds that the look took.
    pub duration_ms: u64,
    /// Questions that were sent.
    pub queries: u32,
    /// `authoritative` or `recursive`: where the answers came from.
    pub resolver: String,
    /// What each nameserver said.
    pub nameservers: Vec<NameserverView>,
    /// What CAA records said.
    pub caa: CaaView,
    /// The state of the record that leads to us.
    pub record: RecordState,
    /// The state of the ownership text, when one was asked for.
    pub txt: Option<RecordState>,
    /// The zone the name lies in.
    pub zone: Option<String>,
}

/// What one nameserver said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameserverView {
    /// Its name.
    pub host: String,
    /// The address that was asked.
    pub ip: Option<IpAddr>,
    /// A word of [`ServerVerdict`].
    pub verdict: String,
    /// Where it leads by CNAME.
    pub cname: Option<String>,
    /// IPv4 addresses.
    pub a: Vec<String>,
    /// IPv6 addresses.
    pub aaaa: Vec<String>,
    /// Seconds that the records may be kept.
    pub ttl: Option<u32>,
}

/// What CAA records said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaaView {
    /// Authorities of ours that may issue.
    pub allowed_cas: Vec<String>,
    /// The records, as they are written in a zone.
    pub records: Vec<String>,
}

/// Judges facts.
pub fn judge(facts: &DnsFacts, expected: &Expectation<'_>) -> Judgement {
    let is_apex = match &facts.zone {
        Zone::Is(zone) => Some(zone == expected.name.as_str()),
        Zone::Missing | Zone::Unknown(_) => None,
    };
    let mut problems = Vec::new();
    let apex = is_apex == Some(true);
    let records = judge_records(facts, expected, apex, &mut problems);
    let (ownership, txt) = judge_ownership(facts, expected, apex, &mut problems);
    let (caa, permitted) = judge_caa(facts, expected, &mut problems);
    Judgement { records, ownership, caa, is_apex, problems, txt, permitted }
}

fn judge_records(facts: &DnsFacts, expected: &Expectation<'_>, apex: bool, problems: &mut Vec<Problem>) -> Records {
    match &facts.zone {
        Zone::Missing => {
            problems.push(explain::zone_missing(expected));
            return Records::Missing;
        }
        Zone::Unknown(why) => {
            problems.push(explain::zone_unknown(expected, *why));
            return Records::Unknown;
        }
        Zone::Is(_) => {}
    }
    let verdicts = server_verdicts(facts, expected, apex);
    let count = |is: fn(&ServerVerdict) -> bool| verdicts.iter().filter(|verdict| is(verdict)).count();
    let ok = count(|verdict| verdict.is_ok());
    let missing = count(|verdict| matches!(verdict, ServerVerdict::Missing | ServerVerdict::Wildcard));
    let unknown = count(|verdict| matches!(verdict, ServerVerdict::Unknown(_)));
    let wrong = verdicts.len() - ok - missing - unknown;
    let nobody = unknown == verdicts.len();
    for (server, verdict) in facts.servers.iter().zip(&verdicts) {
        match verdict {
            // Not asked, so nothing is known against it.
            ServerVerdict::Unknown(Why::Unreachable) if !nobody => {}
            ServerVerdict::Unknown(why) => problems.push(explain::unanswered(server, *why, nobody)),
            _ => {}
        }
    }
    if let Some((server, _)) = facts.servers.iter().zip(&verdicts).find(|(_, v)| **v == ServerVerdict::OkApexCname) {
        problems.push(explain::apex_cname(expected, server));
    }
    match (ok, missing, wrong) {
        (0, 0, 0) => Records::Unknown,
        (_, 0, 0) => Records::Pass,
        (0, _, 0) => {
            problems.push(explain::no_record(facts, expected, apex));
            Records::Missing
        }
        (0, _, _) => {
            explain::wrong(facts, &verdicts, expected, problems);
            Records::Wrong
        }
        _ => {
            problems.push(explain::partial(facts, &verdicts, expected));
            Records::Partial
        }
    }
}

fn server_verdicts(facts: &DnsFacts, expected: &Expectation<'_>, apex: bool) -> Vec<ServerVerdict> {
    let edge: Vec<IpAddr> = expected.edge.iter().chain(&facts.target_addresses).copied().collect();
    let target = expected.target.as_str();
    facts.servers.iter().map(|server| server::judge(server, target, &edge, apex, &facts.chain)).collect()
}

/// Whether every nameserver that leads to us does so by a record that only this project has.
fn is_specific(verdicts: &[ServerVerdict]) -> bool {
    let mut leading = verdicts.iter().filter(|verdict| verdict.is_ok()).peekable();
    leading.peek().is_some() && leading.all(|verdict| *verdict != ServerVerdict::OkByAddress)
}

fn judge_ownership(
    facts: &DnsFacts,
    expected: &Expectation<'_>,
    apex: bool,
    problems: &mut Vec<Problem>,
) -> (Ownership, Option<RecordState>) {
    let proves = expected.claim == Claim::Contested
        || (expected.claim.may_ask_for_text(apex) && !is_specific(&server_verdicts(facts, expected, apex)));
    if !proves {
        return (Ownership::Held, None);
    }
    let text = expected.text;
    match &facts.texts {
        Some(Answer::Is(texts)) if texts.iter().any(|found| found.trim() == text) => {
            (Ownership::Held, Some(RecordState::Ok))
        }
        Some(Answer::Is(texts)) => {
            problems.push(explain::text(ProblemCode::OwnershipTxtMismatch, expected, texts));
            (Ownership::Missing, Some(RecordState::Wrong))
        }
        Some(Answer::Nothing) => {
            problems.push(explain::text(ProblemCode::OwnershipTxtMissing, expected, &[]));
            (Ownership::Missing, Some(RecordState::Missing))
        }
        Some(Answer::Failed(why)) => {
            problems.push(explain::text_unknown(&format!("{TEXT_LABEL}.{}", expected.name), *why));
            (Ownership::Unknown, Some(RecordState::Unknown))
        }
        None => (Ownership::Unknown, Some(RecordState::Unknown)),
    }
}

fn judge_caa(
    facts: &DnsFacts,
    expected: &Expectation<'_>,
    problems: &mut Vec<Problem>,
) -> (Caa, Vec<(String, Vec<String>)>) {
    if expected.authorities.is_empty() {
        return (Caa::Allowed, Vec::new());
    }
    let rulings: Vec<(&CaaIdentity, CaaRuling)> =
        expected.authorities.iter().map(|identity| (identity, rule(&facts.caa, identity, false))).collect();
    let permitted: Vec<(String, Vec<String>)> = rulings
        .iter()
        .filter_map(|(identity, ruling)| match ruling {
            CaaRuling::Permits(methods) => Some((identity.domain.clone(), methods.clone())),
            _ => None,
        })
        .collect();
    if !permitted.is_empty() {
        return (Caa::Allowed, permitted);
    }
    let Some((identity, ruling)) = rulings.first() else { return (Caa::Allowed, permitted) };
    problems.push(explain::caa(identity, ruling, &facts.caa));
    let caa = if matches!(ruling, CaaRuling::Unknown(_)) { Caa::Unknown } else { Caa::Forbidden };
    (caa, permitted)
}

/// The look at DNS as its owner will see it.
pub fn checks(facts: &DnsFacts, expected: &Expectation<'_>, judged: &Judgement, at_ms: i64) -> Checks {
    let apex = judged.is_apex == Some(true);
    let verdicts = server_verdicts(facts, expected, apex);
    let view = |(server, verdict): (&super::facts::ServerFacts, &ServerVerdict)| NameserverView {
        host: server.host.clone(),
        ip: server.ip,
        verdict: verdict.as_str().to_owned(),
        cname: match &server.cname {
            Answer::Is(cname) => Some(cname.clone()),
            Answer::Nothing | Answer::Failed(_) => None,
        },
        a: server.a.iter().map(ToString::to_string).collect(),
        aaaa: server.aaaa.iter().map(ToString::to_string).collect(),
        ttl: server.ttl,
    };
    let records = facts.caa.iter().flat_map(|level| {
        let found = level.records.as_deref().unwrap_or_default();
        found.iter().map(|record| explain::show_caa(&level.name, record))
    });
    Checks {
        at_ms,
        duration_ms: facts.duration_ms,
        queries: facts.queries,
        resolver: facts.resolver.to_owned(),
        nameservers: facts.servers.iter().zip(&verdicts).map(view).collect(),
        caa: CaaView {
            allowed_cas: judged.permitted.iter().map(|(authority, _)| authority.clone()).collect(),
            records: records.collect(),
        },
        record: judged.record_state(),
        txt: judged.txt,
        zone: match &facts.zone {
            Zone::Is(zone) => Some(zone.clone()),
            Zone::Missing | Zone::Unknown(_) => None,
        },
    }
}

#[cfg(test)]
mod tests;
