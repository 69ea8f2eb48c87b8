//! A domain of the API in words.

use verification::problem::{ProblemCode, Severity};
use verification::verdict::NameserverView;

use crate::words as w;
use domains_api::types::{Domain, Problem, Status};

/// The meaning of the status for the domain's owner.
pub(super) fn sentence(domain: &Domain) -> String {
    if domain.status == Status::Propagating {
        let servers = domain.checks.as_ref().map_or(&[][..], |checks| &checks.nameservers);
        let right = servers.iter().filter(|server| server.verdict.starts_with("ok")).count();
        return w::propagating(right, servers.len());
    }
    if let (Status::Issuing, Some(position)) = (domain.status, &domain.certificate.queue) {
        return w::waits_in_queue(position.number);
    }
    w::status_sentence(domain.status.as_str()).to_owned()
}

/// The same on the domain's own page, which has the details below.
pub(super) fn sentence_here(domain: &Domain) -> String {
    match domain.status {
        Status::ActionRequired => w::ACT_HERE.to_owned(),
        Status::Suspended => w::SUSPENDED_HERE.to_owned(),
        _ => sentence(domain),
    }
}

/// Whether the page begins with the records that the owner must create.
pub(super) fn waits_for_records(domain: &Domain) -> bool {
    matches!(domain.status, Status::PendingDns | Status::PendingOwnership)
}

/// Whether its state may change soon without the owner.
pub(super) fn is_moving(domain: &Domain) -> bool {
    !matches!(domain.status, Status::Active | Status::Suspended)
}

pub(super) fn verify_word(domain: &Domain) -> &'static str {
    if waits_for_records(domain) { "Verify" } else { "Re-verify" }
}

/// The answer of a nameserver, as a record.
pub(super) fn answer(server: &NameserverView) -> String {
    let cname = server.cname.iter().map(|name| format!("CNAME {name}"));
    let a = server.a.iter().map(|address| format!("A {address}"));
    let aaaa = server.aaaa.iter().map(|address| format!("AAAA {address}"));
    let all: Vec<String> = cname.chain(a).chain(aaaa).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
}

/// The party that must act on a problem.
pub(super) fn who(problem: &Problem) -> &'static str {
    if passes_by_itself(problem) { "Time must pass" } else { w::who(problem.who.as_str()) }
}

pub(super) fn is_error(problem: &Problem) -> bool {
    problem.severity == Severity::Error && !passes_by_itself(problem)
}

/// Whether the problem solves itself, although it blocks the domain until then.
fn passes_by_itself(problem: &Problem) -> bool {
    problem.code == ProblemCode::DnsPartial
}
