//! A domain of the API in words.

use contract::time::UnixMillis;
use verification::problem::{ProblemCode, Severity};
use verification::verdict::NameserverView;

use crate::moment::Moment;
use crate::words as w;
use domains_api::types::{Domain, Problem, Record, Status};

/// A status, verdict or state: its word and its colour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Badge {
    pub(super) word: &'static str,
    /// `good`, `wait`, `bad` or `off`.
    pub(super) tone: &'static str,
}

impl Badge {
    /// A sign beside the word, for people who do not see the colours.
    pub(super) fn sign(&self) -> &'static str {
        match self.tone {
            "good" => "✓",
            "wait" => "…",
            "bad" => "!",
            _ => "–",
        }
    }

    fn of((word, tone): (&'static str, &'static str)) -> Self {
        Self { word, tone }
    }
}

/// A domain in words.
pub(super) trait DomainWords {
    fn badge(&self) -> Badge;
    /// The meaning of the status for the domain's owner.
    fn sentence(&self) -> String;
    /// The same on the domain's own page, which has the details below.
    fn sentence_here(&self) -> String;
    /// Whether the page begins with the records that the owner must create.
    fn waits_for_records(&self) -> bool;
    fn is_served(&self) -> bool;
    /// Whether its state may change soon without the owner.
    fn is_moving(&self) -> bool;
    /// Whether the name reads differently in its own script.
    fn is_foreign(&self) -> bool;
    fn certificate_badge(&self) -> Badge;
    fn redirect_words(&self) -> Option<String>;
    fn verify_word(&self) -> &'static str;
    fn certificate_ends(&self, now: UnixMillis) -> Option<Moment>;
}

impl DomainWords for Domain {
    fn badge(&self) -> Badge {
        Badge::of(w::status(self.status.as_str()))
    }

    fn sentence(&self) -> String {
        if self.status == Status::Propagating {
            let servers = self.checks.as_ref().map_or(&[][..], |checks| &checks.nameservers);
            let right = servers.iter().filter(|server| server.verdict.starts_with("ok")).count();
            return w::propagating(right, servers.len());
        }
        if let (Status::Issuing, Some(position)) = (self.status, &self.certificate.queue) {
            return w::waits_in_queue(position.number);
        }
        w::status_sentence(self.status.as_str()).to_owned()
    }

    fn sentence_here(&self) -> String {
        match self.status.as_str() {
            "action_required" => w::ACT_HERE.to_owned(),
            "suspended" => w::SUSPENDED_HERE.to_owned(),
            _ => self.sentence(),
        }
    }

    fn waits_for_records(&self) -> bool {
        matches!(self.status.as_str(), "pending_dns" | "pending_ownership")
    }

    fn is_served(&self) -> bool {
        matches!(self.status.as_str(), "active" | "degraded")
    }

    fn is_moving(&self) -> bool {
        !matches!(self.status.as_str(), "active" | "suspended")
    }

    fn is_foreign(&self) -> bool {
        self.name.as_str() != self.unicode_name
    }

    fn certificate_badge(&self) -> Badge {
        Badge::of(w::certificate_status(self.certificate.status.as_str()))
    }

    fn redirect_words(&self) -> Option<String> {
        self.redirect.as_ref().map(|redirect| w::redirects(&redirect.to, redirect.status))
    }

    fn verify_word(&self) -> &'static str {
        if matches!(self.status.as_str(), "pending_dns" | "pending_ownership") { "Verify" } else { "Re-verify" }
    }

    fn certificate_ends(&self, now: UnixMillis) -> Option<Moment> {
        self.certificate.not_after.as_deref().and_then(|at| Moment::parse(at, now))
    }
}

/// A DNS record in words.
pub(super) trait RecordWords {
    fn badge(&self) -> Badge;
}

impl RecordWords for Record {
    fn badge(&self) -> Badge {
        Badge::of(w::record_state(self.state.as_str()))
    }
}

pub(super) fn verdict_badge(server: &NameserverView) -> Badge {
    Badge::of(w::verdict(&server.verdict))
}

/// The answer of a nameserver, as a record.
pub(super) fn answer(server: &NameserverView) -> String {
    let cname = server.cname.iter().map(|name| format!("CNAME {name}"));
    let a = server.a.iter().map(|address| format!("A {address}"));
    let aaaa = server.aaaa.iter().map(|address| format!("AAAA {address}"));
    let all: Vec<String> = cname.chain(a).chain(aaaa).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
}

/// A problem in words.
pub(super) trait ProblemWords {
    fn who_words(&self) -> &'static str;
    fn is_error(&self) -> bool;
    /// The time of the next attempt.
    fn retry(&self) -> Option<String>;
}

impl ProblemWords for Problem {
    fn who_words(&self) -> &'static str {
        if passes_by_itself(self) { "Time must pass" } else { w::who(self.who.as_str()) }
    }

    fn is_error(&self) -> bool {
        self.severity == Severity::Error && !passes_by_itself(self)
    }

    fn retry(&self) -> Option<String> {
        // The present time does not matter: only the moment itself is shown.
        self.retry_at.as_deref().and_then(|at| Moment::parse(at, UnixMillis(0))).map(|at| at.plain)
    }
}

/// Whether the problem solves itself, although it blocks the domain until then.
fn passes_by_itself(problem: &Problem) -> bool {
    problem.code == ProblemCode::DnsPartial
}
