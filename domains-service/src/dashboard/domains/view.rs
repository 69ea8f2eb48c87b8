//! A domain as the API describes it, and as people read it.

use contract::time::UnixMillis;
use verification::problem::{ProblemCode, Severity};
use verification::verdict::NameserverView;

use crate::api::types::{Domain, Problem, Record};
use crate::dashboard::moment::Moment;
use crate::dashboard::words as w;
use crate::domain::Status;

/// A status, a verdict or a state: its word, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Badge {
    pub(super) word: &'static str,
    /// `good`, `wait`, `bad` or `off`.
    pub(super) tone: &'static str,
}

impl Badge {
    /// A sign beside the word, so that nobody needs colours.
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

impl Domain {
    pub(super) fn badge(&self) -> Badge {
        Badge::of(w::status(self.status.as_str()))
    }

    /// What the status means for its owner.
    pub(super) fn sentence(&self) -> String {
        if self.status == Status::Propagating {
            let (right, all) = self.nameservers_right();
            return w::propagating(right, all);
        }
        w::status_sentence(self.status.as_str()).to_owned()
    }

    /// The same on its own page, where what is meant stands below.
    pub(super) fn sentence_here(&self) -> String {
        match self.status.as_str() {
            "action_required" => w::ACT_HERE.to_owned(),
            "suspended" => w::SUSPENDED_HERE.to_owned(),
            _ => self.sentence(),
        }
    }

    /// Whether what its owner is to create comes first on its page.
    pub(super) fn waits_for_records(&self) -> bool {
        matches!(self.status.as_str(), "pending_dns" | "pending_ownership")
    }

    pub(super) fn nameservers_right(&self) -> (usize, usize) {
        let servers = self.checks.as_ref().map_or(&[][..], |checks| &checks.nameservers);
        (servers.iter().filter(|server| is_right(server)).count(), servers.len())
    }

    pub(super) fn is_served(&self) -> bool {
        matches!(self.status.as_str(), "active" | "degraded")
    }

    /// Whether something of it may change by itself soon.
    pub(super) fn is_moving(&self) -> bool {
        !matches!(self.status.as_str(), "active" | "suspended")
    }

    /// Whether the name reads differently in its own script.
    pub(super) fn is_foreign(&self) -> bool {
        self.name.as_str() != self.unicode_name
    }

    pub(super) fn certificate_badge(&self) -> Badge {
        Badge::of(w::certificate_status(self.certificate.status.as_str()))
    }

    pub(super) fn redirect_words(&self) -> Option<String> {
        self.redirect.as_ref().map(|redirect| w::redirects(&redirect.to, redirect.status))
    }

    pub(super) fn verify_word(&self) -> &'static str {
        if matches!(self.status.as_str(), "pending_dns" | "pending_ownership") { "Verify" } else { "Re-verify" }
    }

    pub(super) fn certificate_ends(&self, now: UnixMillis) -> Option<Moment> {
        self.certificate.not_after.as_deref().and_then(|at| Moment::parse(at, now))
    }
}

impl Record {
    pub(super) fn badge(&self) -> Badge {
        Badge::of(w::record_state(self.state.as_str()))
    }
}

fn is_right(server: &NameserverView) -> bool {
    server.verdict.starts_with("ok")
}

pub(super) fn verdict_badge(server: &NameserverView) -> Badge {
    Badge::of(w::verdict(&server.verdict))
}

/// What a nameserver answered, as a record reads.
pub(super) fn answer(server: &NameserverView) -> String {
    let cname = server.cname.iter().map(|name| format!("CNAME {name}"));
    let a = server.a.iter().map(|address| format!("A {address}"));
    let aaaa = server.aaaa.iter().map(|address| format!("AAAA {address}"));
    let all: Vec<String> = cname.chain(a).chain(aaaa).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
}

impl Problem {
    pub(super) fn who_words(&self) -> &'static str {
        if self.passes_by_itself() { "Time must pass" } else { w::who(self.who.as_str()) }
    }

    pub(super) fn is_error(&self) -> bool {
        self.severity == Severity::Error && !self.passes_by_itself()
    }

    /// When the next attempt is.
    pub(super) fn retry(&self) -> Option<String> {
        // What it is seen from does not matter: only the moment itself is shown.
        self.retry_at.as_deref().and_then(|at| Moment::parse(at, UnixMillis(0))).map(|at| at.plain)
    }

    /// Nothing goes on before it is solved, and yet there is nothing to do about it.
    fn passes_by_itself(&self) -> bool {
        self.code == ProblemCode::DnsPartial
    }
}
