//! The messages: the problem, where it was seen, and what to type.

use std::net::IpAddr;

use super::{Expectation, ServerVerdict, Zone};
use crate::CaaRecord;
use crate::caa::{CaaIdentity, CaaRuling, is_critical_unknown};
use crate::facts::{CaaLevel, Claim, DnsAnswer, DnsFacts, NoAnswer, ServerFacts};
use crate::networks::proxy_of;
use crate::problem::{Problem, ProblemCode};
use crate::{TEXT_LABEL, TTL_SECONDS};

/// Addresses listed in one problem.
const SHOWN_MAX: usize = 8;

pub(super) fn zone_missing(expected: &Expectation<'_>) -> Problem {
    let name = expected.name;
    Problem::new(
        ProblemCode::DnsZoneMissing,
        name.as_str(),
        format!(
            "No nameserver is responsible for {name}: the domain is not registered, has expired, or its nameservers are not set."
        ),
        "Register the domain or set its nameservers at your registrar, then choose Verify.",
    )
}

/// The responsible nameservers could not be found.
pub(super) fn zone_unknown(expected: &Expectation<'_>, why: NoAnswer, resolver_answers: bool) -> Problem {
    let name = expected.name;
    if !resolver_answers && why != NoAnswer::Bogus {
        let message = format!("Our own DNS resolver does not answer, so {name} could not be checked.");
        let fix = "No action is needed: we check again automatically.";
        return Problem::new(ProblemCode::DnsTimeout, name.as_str(), message, fix).holding_up().ours();
    }
    if why == NoAnswer::Bogus {
        return Problem::new(
            ProblemCode::DnsDnssec,
            name.as_str(),
            format!(
                "DNSSEC of {name} is broken: its signatures do not match the DS record at the registrar. Resolvers that check them, and certificate authorities, see no records at all."
            ),
            "Sign the zone again at your DNS provider, or remove the DS record at your registrar; then choose Verify.",
        );
    }
    let (code, what) = match why {
        NoAnswer::Lame => (ProblemCode::DnsLameNs, "could not be found: its parent zone lists none"),
        NoAnswer::ServFail | NoAnswer::Malformed => (ProblemCode::DnsServfail, "give resolvers no usable answer"),
        _ => (ProblemCode::DnsTimeout, "do not answer"),
    };
    let fix = "If this stays, ask your DNS provider whether the nameservers of the domain work; we check again \
         automatically.";
    let message = format!("The nameservers of {name} {what}.");
    Problem::new(code, name.as_str(), message, fix).holding_up()
}

/// A nameserver without a usable answer. If all of them have none, the domain is blocked.
pub(super) fn unanswered(server: &ServerFacts, why: NoAnswer, none_answered: bool) -> Problem {
    let host = server.host.as_str();
    let place = server.ip.map_or_else(|| host.to_owned(), |ip| format!("{host} ({ip})"));
    let problem = silence(host, &place, why);
    if none_answered { problem.holding_up() } else { problem }
}

/// The ownership TXT record could not be queried.
pub(super) fn text_unknown(place: &str, why: NoAnswer) -> Problem {
    silence(place, place, why)
}

fn silence(host: &str, place: &str, why: NoAnswer) -> Problem {
    let (code, what) = match why {
        NoAnswer::Timeout => (ProblemCode::DnsTimeout, "did not answer in time"),
        NoAnswer::Unreachable => {
            (ProblemCode::DnsTimeout, "cannot be reached from our network, which may have no IPv6")
        }
        NoAnswer::ServFail | NoAnswer::Malformed | NoAnswer::Bogus => (ProblemCode::DnsServfail, "reported a failure"),
        NoAnswer::Lame => (ProblemCode::DnsLameNs, "is listed as a nameserver but does not know the zone"),
        NoAnswer::NoAddress => (ProblemCode::DnsLameNs, "is listed as a nameserver but has no public address"),
    };
    let fix = "If this stays, ask your DNS provider; we check again automatically.";
    let problem = Problem::new(code, host, format!("{place} {what}."), fix);
    if why == NoAnswer::Unreachable { problem.ours() } else { problem }
}

fn create(expected: &Expectation<'_>, apex: bool) -> String {
    let (name, target) = (expected.name, expected.target);
    if apex {
        format!("Create an ALIAS (or ANAME) record: {name} ALIAS {target}")
    } else {
        format!("Create the record: {name} {TTL_SECONDS} CNAME {target}")
    }
}

pub(super) fn no_record(facts: &DnsFacts, expected: &Expectation<'_>, apex: bool) -> Problem {
    let kind = if apex { "ALIAS or ANAME" } else { "CNAME" };
    let (name, code) = (expected.name, ProblemCode::DnsNoRecord);
    let wild = facts.servers.iter().find_map(|server| server.wildcard.as_ref().map(|wildcard| (wildcard, server)));
    if let Some(doubled) = &facts.doubled {
        let message = format!(
            "{name} has no record, but {doubled} has the one for it: the name was entered in full, and the zone was added to it."
        );
        let fix = format!("Change the record's name to {name}. {}", create(expected, apex));
        return Problem::new(code, name.as_str(), message, fix)
            .seen([expected.target.to_string()], [format!("{doubled} CNAME {}", expected.target)]);
    }
    let Some((wildcard, server)) = wild else {
        let message = format!("{name} has no {kind} record yet. DNS changes can take up to 48 hours.");
        let problem = Problem::new(code, name.as_str(), message, create(expected, apex));
        return problem.seen([expected.target.to_string()], []);
    };
    let seen = format!("{wildcard} {}", answer(server, ServerVerdict::Wildcard));
    let message = format!("{name} has no record of its own: the wildcard record {seen} answers for it.");
    let fix = format!("{}. The wildcard record can stay.", create(expected, apex));
    Problem::new(code, name.as_str(), message, fix).seen([expected.target.to_string()], [seen])
}

pub(super) fn apex_cname(expected: &Expectation<'_>, server: &ServerFacts) -> Problem {
    Problem::new(
        ProblemCode::DnsApexNeedsAlias,
        server.host.as_str(),
        format!(
            "{} is the apex of its zone and holds a CNAME, which breaks its other records for many resolvers.",
            expected.name
        ),
        create(expected, true),
    )
}

/// Explains the first nameserver of each kind of wrong answer.
pub(super) fn wrong(
    facts: &DnsFacts,
    verdicts: &[ServerVerdict],
    expected: &Expectation<'_>,
    problems: &mut Vec<Problem>,
) {
    let mut seen: Vec<ServerVerdict> = Vec::new();
    for (server, verdict) in facts.servers.iter().zip(verdicts) {
        if verdict.is_ok() || seen.contains(verdict) {
            continue;
        }
        seen.push(*verdict);
        explain_one(server, *verdict, facts, expected, problems);
    }
}

fn explain_one(
    server: &ServerFacts,
    verdict: ServerVerdict,
    facts: &DnsFacts,
    expected: &Expectation<'_>,
    problems: &mut Vec<Problem>,
) {
    let (name, target) = (expected.name, expected.target);
    let a: Vec<String> = server.a.iter().take(SHOWN_MAX).map(ToString::to_string).collect();
    let aaaa: Vec<String> = server.aaaa.iter().take(SHOWN_MAX).map(ToString::to_string).collect();
    let cname = match &server.cname {
        DnsAnswer::Is(cname) => cname.clone(),
        DnsAnswer::Nothing | DnsAnswer::Failed(_) => String::new(),
    };
    let problem = |code, message: String, fix: String, observed: Vec<String>| {
        Problem::new(code, server.host.as_str(), message, fix).seen([target.to_string()], observed)
    };
    let ours = |text: &str| {
        let address = text.parse::<IpAddr>();
        address.is_ok_and(|address| expected.edge.contains(&address) || facts.target_addresses.contains(&address))
    };
    match verdict {
        ServerVerdict::CnameMismatch if is_target_in_zone(&cname, expected, facts) => problems.push(problem(
            ProblemCode::DnsCnameMismatch,
            format!(
                "{name} points at {cname}: the value was entered without its final dot, so the zone was added to it."
            ),
            format!("Change the CNAME of {name} to {target}. with the dot at the end"),
            vec![cname],
        )),
        ServerVerdict::CnameMismatch => problems.push(problem(
            ProblemCode::DnsCnameMismatch,
            format!("{name} points at {cname}. The value must be exactly {target}."),
            format!("Change the CNAME of {name} to {target}"),
            vec![cname],
        )),
        ServerVerdict::CnameChained => problems.push(problem(
            ProblemCode::DnsCnameChained,
            format!("{name} points to us through {cname}. Its own record must name {target}."),
            format!("Change the CNAME of {name} from {cname} to {target}"),
            vec![cname],
        )),
        ServerVerdict::ConflictingA | ServerVerdict::ConflictingAaaa | ServerVerdict::ConflictingBoth => {
            for (code, kind, found) in
                [(ProblemCode::DnsConflictingA, "A", a), (ProblemCode::DnsConflictingAaaa, "AAAA", aaaa)]
            {
                if found.is_empty() {
                    continue;
                }
                let is_ours = found.iter().any(|text| ours(text));
                let hint =
                    if is_ours { " The address is ours, but a CNAME keeps working when it changes." } else { "" };
                let article = if kind == "A" { "an A" } else { "an AAAA" };
                problems.push(problem(
                    code,
                    format!("{name} has {article} record {}, which blocks the CNAME.{hint}", found.join(", ")),
                    format!("Delete the {kind} record of {name}, then add: {name} {TTL_SECONDS} CNAME {target}"),
                    found,
                ));
            }
        }
        ServerVerdict::Proxied => {
            let addresses: Vec<String> = a.into_iter().chain(aaaa).collect();
            let network = addresses.iter().filter_map(|text| text.parse().ok()).find_map(proxy_of);
            let network = network.unwrap_or("a content delivery network");
            problems.push(problem(
                ProblemCode::DnsProxied,
                format!(
                    "{name} is proxied by {network}, so its CNAME cannot be seen and the certificate cannot be issued."
                ),
                format!("Switch the proxy off for {name} (DNS only) and keep: {name} {TTL_SECONDS} CNAME {target}"),
                addresses,
            ));
        }
        ServerVerdict::AddressMismatch => {
            let foreign: Vec<String> = a.into_iter().chain(aaaa).filter(|text| !ours(text)).collect();
            problems.push(problem(
                ProblemCode::DnsApexAddressMismatch,
                format!("{name} has addresses that are not ours: {}.", foreign.join(", ")),
                format!("Delete the A and AAAA records of {name}. {}", create(expected, true)),
                foreign,
            ));
        }
        ServerVerdict::Missing | ServerVerdict::Wildcard => {
            problems.push(no_record(facts, expected, matches!(&facts.zone, Zone::Is(zone) if zone == name.as_str())));
        }
        ServerVerdict::Ok | ServerVerdict::OkByAddress | ServerVerdict::OkApexCname | ServerVerdict::Unknown(_) => {}
    }
}

/// Whether a CNAME names the target with the zone's name added to it.
fn is_target_in_zone(cname: &str, expected: &Expectation<'_>, facts: &DnsFacts) -> bool {
    let Zone::Is(zone) = &facts.zone else { return false };
    cname.strip_suffix(zone.as_str()).and_then(|rest| rest.strip_suffix('.')) == Some(expected.target.as_str())
}

pub(super) fn partial(facts: &DnsFacts, verdicts: &[ServerVerdict], expected: &Expectation<'_>) -> Problem {
    let ok = verdicts.iter().filter(|verdict| verdict.is_ok()).count();
    let total = verdicts.len();
    let behind = || facts.servers.iter().zip(verdicts).filter(|(_, verdict)| !verdict.is_ok()).take(SHOWN_MAX);
    let hosts: Vec<&str> = behind().map(|(server, _)| server.host.as_str()).collect();
    let answers = behind().map(|(server, verdict)| format!("{}: {}", server.host, answer(server, *verdict)));
    Problem::new(
        ProblemCode::DnsPartial,
        hosts.join(", "),
        format!("{ok} of {total} of your nameservers already answer correctly."),
        "Wait: the change is spreading. If it stays so, ask your DNS provider why the nameservers differ.",
    )
    .seen([expected.target.to_string()], answers)
}

/// A nameserver's answer in record syntax.
fn answer(server: &ServerFacts, verdict: ServerVerdict) -> String {
    match (&server.cname, verdict) {
        (DnsAnswer::Is(cname), _) => format!("CNAME {cname}"),
        (_, ServerVerdict::Missing) => "nothing".to_owned(),
        (_, ServerVerdict::Unknown(_)) => format!("no usable answer ({})", verdict.as_str()),
        _ => {
            let a = server.a.iter().map(|address| format!("A {address}"));
            let aaaa = server.aaaa.iter().map(|address| format!("AAAA {address}"));
            a.chain(aaaa).take(SHOWN_MAX).collect::<Vec<_>>().join(", ")
        }
    }
}

/// The ownership TXT record is missing or wrong. `leads_here`: a nameserver has our addresses for the name.
pub(super) fn text(code: ProblemCode, expected: &Expectation<'_>, found: &[String], leads_here: bool) -> Problem {
    let (name, text) = (expected.name, expected.text);
    let place = format!("{TEXT_LABEL}.{name}");
    let fix = format!("Create the record: {place} {TTL_SECONDS} TXT \"{text}\"");
    let message = match expected.claim {
        Claim::Contested => format!("{name} is or was attached to another project. Prove that it is yours."),
        Claim::Open | Claim::Proven if !leads_here => format!(
            "{name} is the apex of its zone. All projects share the addresses of the platform, so a TXT record must prove that it is yours."
        ),
        Claim::Open | Claim::Proven => format!(
            "{name} points at addresses of the platform, which all projects share, so they do not prove ownership."
        ),
    };
    Problem::new(code, place, message, fix).seen([text.to_owned()], found.iter().take(SHOWN_MAX).cloned())
}

pub(super) fn local_taken() -> Problem {
    Problem::new(
        ProblemCode::OwnershipTxtMissing,
        "localhost",
        "Another project on this machine has this local name, or a related one (parent, child or sibling).",
        "Remove that name from the other project, or choose another one.",
    )
}

pub(super) fn caa(identity: &CaaIdentity, ruling: &CaaRuling, levels: &[CaaLevel]) -> Problem {
    let authority = &identity.domain;
    let records = |place: &str| {
        let level = levels.iter().find(|level| level.name == place);
        let records = level.and_then(|level| level.records.as_deref().ok()).unwrap_or_default();
        records.iter().map(|record| show_caa(place, record)).take(SHOWN_MAX).collect::<Vec<_>>()
    };
    let add = |place: &str| format!("Add: {place} CAA 0 issue \"{authority}\"");
    let (code, place, message, fix) = match ruling {
        CaaRuling::Unknown(place) => (
            ProblemCode::CaaLookupFailed,
            place,
            format!("The CAA records of {place} could not be read, so no authority will issue a certificate."),
            "If this stays, ask your DNS provider; we check again automatically.".to_owned(),
        ),
        CaaRuling::OtherAccount(place) => (
            ProblemCode::CaaAccountMismatch,
            place,
            format!("The CAA records of {place} allow {authority}, but for another account than ours."),
            match &identity.account_uri {
                Some(uri) => format!("Add: {place} CAA 0 issue \"{authority}; accounturi={uri}\""),
                None => add(place),
            },
        ),
        CaaRuling::OtherMethod(place) => (
            ProblemCode::CaaMethodMismatch,
            place,
            format!("The CAA records of {place} allow {authority}, but not by {}.", identity.methods.join(" or ")),
            format!("Add: {place} CAA 0 issue \"{authority}; validationmethods={}\"", identity.methods.join(",")),
        ),
        CaaRuling::Critical(place, still_forbidden) => (
            ProblemCode::CaaForbids,
            place,
            format!(
                "The CAA records of {place} contain a critical record of an unknown kind, so no certificate authority may issue."
            ),
            {
                let critical =
                    levels.iter().find(|level| level.name == *place).and_then(|level| level.records.as_ref().ok());
                let critical = critical.into_iter().flatten().filter(|record| is_critical_unknown(record));
                let delete: Vec<String> = critical.map(|record| show_caa(place, record)).take(SHOWN_MAX).collect();
                let then = if *still_forbidden {
                    format!(". Then add: {place} CAA 0 issue \"{authority}\"")
                } else {
                    String::new()
                };
                format!("Delete: {}{then}", delete.join(", "))
            },
        ),
        CaaRuling::Forbids(place) => (
            ProblemCode::CaaForbids,
            place,
            format!("The CAA records of {place} do not allow {authority} to issue certificates."),
            add(place),
        ),
        CaaRuling::Permits(_) => {
            (ProblemCode::CaaForbids, authority, "The CAA records allow us.".to_owned(), String::new())
        }
    };
    Problem::new(code, place.as_str(), message, fix).seen([format!("0 issue \"{authority}\"")], records(place))
}

/// A CAA record in zone file syntax.
pub(super) fn show_caa(place: &str, record: &CaaRecord) -> String {
    let value: String = String::from_utf8_lossy(&record.value).chars().filter(|letter| !letter.is_control()).collect();
    format!("{place} CAA {} {} \"{value}\"", record.flags, record.tag)
}
