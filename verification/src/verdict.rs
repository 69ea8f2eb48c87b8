//! Judges DNS facts about a domain: pass, wait, or the exact problems.
//!
//! Pure. A nameserver that could not be queried is unknown, never wrong.

mod explain;
mod server;

use std::net::IpAddr;

use contract::hostname::Hostname;
use serde::{Deserialize, Serialize};

use super::caa::{CaaIdentity, CaaRuling, rule};
use super::facts::{Claim, DnsAnswer, DnsFacts, NoAnswer, Zone};
use crate::TEXT_LABEL;
use crate::problem::{Problem, ProblemCode};
pub use server::ServerVerdict;

/// The expected state.
pub struct Expectation<'a> {
    /// The domain.
    pub name: &'a Hostname,
    /// The project's CNAME target.
    pub target: &'a Hostname,
    /// Addresses of the edge, for an apex.
    pub edge: &'a [IpAddr],
    /// The TXT value that proves ownership.
    pub text: &'a str,
    /// The state of the ownership before.
    pub claim: Claim,
    /// The authorities that may be used, best first. Empty: CAA is not checked.
    pub authorities: &'a [CaaIdentity],
}

contract::words! {
    /// Whether records are as the customer was asked to create them.
    pub enum Records {
        /// At every nameserver that answered.
        Pass = "ok",
        /// At none: there are no records.
        Missing = "missing",
        /// They have other values.
        Wrong = "wrong",
        /// At some nameservers.
        Partial = "partial",
        /// No nameserver answered.
        Unknown = "unknown",
    }
}

/// Whether the project owns the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// It does.
    Held,
    /// The proof does not exist.
    Missing,
    /// DNS did not answer.
    Unknown,
}

/// Whether a certificate may be issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caa {
    /// At least one of our authorities may issue.
    Allowed,
    /// None of them may.
    Forbidden,
    /// DNS did not answer.
    Unknown,
}

/// The judgement of the facts.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// Whether the records point at us.
    pub records: Records,
    /// Whether the project owns the name.
    pub ownership: Ownership,
    /// Whether a certificate may be issued.
    pub caa: Caa,
    /// Whether the name is the apex of its zone; `None` if the zone is unknown.
    pub is_apex: Option<bool>,
    /// The problems, worst first.
    pub problems: Vec<Problem>,
    /// The state of the ownership TXT record, if it was required.
    pub txt: Option<Records>,
    /// The authorities that may issue, best first, with the methods they may use.
    pub permitted: Vec<(String, Vec<String>)>,
    /// The addresses of the CNAME target.
    pub target_addresses: Vec<IpAddr>,
    /// Whether none of our resolvers answered any question: this says nothing about the name.
    pub resolver_down: bool,
}

impl Judgement {
    /// Records, ownership and CAA all pass: a certificate may be ordered.
    pub fn passes(&self) -> bool {
        self.records == Records::Pass && self.ownership == Ownership::Held && self.caa == Caa::Allowed
    }

    /// Whether DNS gave no answer that decides: it neither passes nor fails.
    pub fn is_unknown(&self) -> bool {
        match self.records {
            Records::Unknown => true,
            Records::Pass => self.ownership != Ownership::Missing && self.caa != Caa::Forbidden && !self.passes(),
            Records::Partial | Records::Missing | Records::Wrong => false,
        }
    }

    /// For a name that always means this machine: no query is needed.
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
            target_addresses: Vec::new(),
            resolver_down: false,
        }
    }
}

/// The last DNS check, as shown to the domain's owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checks {
    /// Milliseconds since the epoch; RFC 3339 in JSON.
    pub at_ms: i64,
    /// Duration of the check in milliseconds.
    pub duration_ms: u64,
    /// Number of queries sent.
    pub queries: u32,
    /// The source of the answers: `authoritative` or `recursive`.
    pub resolver: String,
    /// The answers of each nameserver.
    pub nameservers: Vec<NameserverView>,
    /// The CAA records.
    pub caa: CaaView,
    /// The state of the record that points at us.
    pub record: Records,
    /// The state of the ownership TXT record, if it was required.
    pub txt: Option<Records>,
    /// The zone of the name.
    pub zone: Option<String>,
}

contract::message! {
    /// Its verdict is a word of [`ServerVerdict`].
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub answer NameserverView as "Nameserver" = "A nameserver's answer." {
        host: String = "Its name.";
        ip: Option<IpAddr> = "Its address.";
        verdict: String = "The verdict on the answer.";
        cname: Option<String> = "The CNAME.";
        a: Vec<String> = "A records.";
        aaaa: Vec<String> = "AAAA records.";
        ttl: Option<u32> = "The time to live of the answer in seconds.";
    }
}

contract::message! {
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub answer CaaView as "" = "CAA records." {
        allowed_cas: Vec<String> = "Authorities that may issue.";
        records: Vec<String> = "The records found.";
    }
}

/// Judges the facts.
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
    let (target_addresses, resolver_down) = (facts.target_addresses.clone(), !facts.resolver_answers);
    Judgement { records, ownership, caa, is_apex, problems, txt, permitted, target_addresses, resolver_down }
}

fn judge_records(facts: &DnsFacts, expected: &Expectation<'_>, apex: bool, problems: &mut Vec<Problem>) -> Records {
    match &facts.zone {
        Zone::Missing => {
            problems.push(explain::zone_missing(expected));
            return Records::Missing;
        }
        Zone::Unknown(why) => {
            problems.push(explain::zone_unknown(expected, *why, facts.resolver_answers));
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
    let none_answered = unknown == verdicts.len();
    for (server, verdict) in facts.servers.iter().zip(&verdicts) {
        match verdict {
            // It could not be queried, so it does not count.
            ServerVerdict::Unknown(NoAnswer::Unreachable) if !none_answered => {}
            ServerVerdict::Unknown(why) => problems.push(explain::unanswered(server, *why, none_answered)),
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

/// Whether every nameserver that points at us does so by CNAME, which only this project has.
fn is_specific(verdicts: &[ServerVerdict]) -> bool {
    let mut leading = verdicts.iter().filter(|verdict| verdict.is_ok()).peekable();
    leading.peek().is_some() && leading.all(|verdict| *verdict != ServerVerdict::OkByAddress)
}

fn judge_ownership(
    facts: &DnsFacts,
    expected: &Expectation<'_>,
    apex: bool,
    problems: &mut Vec<Problem>,
) -> (Ownership, Option<Records>) {
    let verdicts = server_verdicts(facts, expected, apex);
    let leads_here = verdicts.iter().any(|verdict| verdict.is_ok());
    let proves =
        expected.claim == Claim::Contested || (expected.claim.may_ask_for_text(apex) && !is_specific(&verdicts));
    if !proves {
        return (Ownership::Held, None);
    }
    let text = expected.text;
    match &facts.texts {
        Some(DnsAnswer::Is(texts)) if texts.iter().any(|found| found.trim() == text) => {
            (Ownership::Held, Some(Records::Pass))
        }
        Some(DnsAnswer::Is(texts)) => {
            problems.push(explain::text(ProblemCode::OwnershipTxtMismatch, expected, texts, leads_here));
            (Ownership::Missing, Some(Records::Wrong))
        }
        Some(DnsAnswer::Nothing) => {
            problems.push(explain::text(ProblemCode::OwnershipTxtMissing, expected, &[], leads_here));
            (Ownership::Missing, Some(Records::Missing))
        }
        Some(DnsAnswer::Failed(why)) => {
            problems.push(explain::text_unknown(&format!("{TEXT_LABEL}.{}", expected.name), *why));
            (Ownership::Unknown, Some(Records::Unknown))
        }
        None => (Ownership::Unknown, Some(Records::Unknown)),
    }
}

fn judge_caa(
    facts: &DnsFacts,
    expected: &Expectation<'_>,
    problems: &mut Vec<Problem>,
) -> (Caa, Vec<(String, Vec<String>)>) {
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

/// The DNS check as shown to the domain's owner.
pub fn checks(facts: &DnsFacts, expected: &Expectation<'_>, judged: &Judgement, at_ms: i64) -> Checks {
    let apex = judged.is_apex == Some(true);
    let verdicts = server_verdicts(facts, expected, apex);
    let view = |(server, verdict): (&super::facts::ServerFacts, &ServerVerdict)| NameserverView {
        host: server.host.clone(),
        ip: server.ip,
        verdict: verdict.as_str().to_owned(),
        cname: match &server.cname {
            DnsAnswer::Is(cname) => Some(cname.clone()),
            DnsAnswer::Nothing | DnsAnswer::Failed(_) => None,
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
        record: judged.records,
        txt: judged.txt,
        zone: match &facts.zone {
            Zone::Is(zone) => Some(zone.clone()),
            Zone::Missing | Zone::Unknown(_) => None,
        },
    }
}

#[cfg(test)]
mod tests;
