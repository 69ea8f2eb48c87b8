//! A domain as the API describes it, and as people read it.

use contract::time::UnixMillis;
use serde::Deserialize;

use crate::dashboard::client::Withdrawal;
use crate::dashboard::moment::Moment;
use crate::dashboard::words as w;

/// A domain as the API describes it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Domain {
    pub(super) name: String,
    pub(super) unicode_name: String,
    pub(super) status: String,
    pub(super) primary: bool,
    pub(super) redirect: Option<Redirect>,
    pub(super) is_apex: bool,
    pub(super) records: Vec<Record>,
    pub(super) checks: Option<Checks>,
    pub(super) problems: Vec<Problem>,
    pub(super) next_check_at: Option<String>,
    pub(super) certificate: Certificate,
    pub(super) withdrawal: Option<Withdrawal>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Redirect {
    pub(super) to: String,
    pub(super) status: Option<u16>,
}

/// A record that its owner creates.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Record {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) value: String,
    pub(super) ttl: u32,
    pub(super) state: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Checks {
    pub(super) at: String,
    pub(super) nameservers: Vec<Nameserver>,
}

/// What one nameserver says.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Nameserver {
    pub(super) host: String,
    pub(super) ip: Option<String>,
    pub(super) verdict: String,
    pub(super) cname: Option<String>,
    pub(super) a: Vec<String>,
    pub(super) aaaa: Vec<String>,
    pub(super) ttl: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Problem {
    pub(super) code: String,
    pub(super) severity: String,
    pub(super) who: String,
    pub(super) message: String,
    pub(super) expected: Vec<String>,
    pub(super) observed: Vec<String>,
    #[serde(rename = "where")]
    pub(super) place: String,
    pub(super) fix: String,
    pub(super) retry_at: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Certificate {
    pub(super) status: String,
    pub(super) ca: Option<String>,
    pub(super) serial: Option<String>,
    pub(super) not_before: Option<String>,
    pub(super) not_after: Option<String>,
    pub(super) key_type: Option<String>,
    pub(super) renew_at: Option<String>,
    pub(super) last_error: Option<String>,
    pub(super) next_attempt_at: Option<String>,
}

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
        Badge::of(w::status(&self.status))
    }

    /// What the status means for its owner.
    pub(super) fn sentence(&self) -> String {
        if self.status == "propagating" {
            let (right, all) = self.nameservers_right();
            return w::propagating(right, all);
        }
        w::status_sentence(&self.status).to_owned()
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
        (servers.iter().filter(|server| server.is_right()).count(), servers.len())
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
        self.name != self.unicode_name
    }

    pub(super) fn certificate_badge(&self) -> Badge {
        Badge::of(w::certificate_status(&self.certificate.status))
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
        Badge::of(w::record_state(&self.state))
    }
}

impl Nameserver {
    pub(super) fn is_right(&self) -> bool {
        self.verdict.starts_with("ok")
    }

    pub(super) fn badge(&self) -> Badge {
        Badge::of(w::verdict(&self.verdict))
    }

    /// What it answered, as a record reads.
    pub(super) fn answer(&self) -> String {
        let cname = self.cname.iter().map(|name| format!("CNAME {name}"));
        let a = self.a.iter().map(|address| format!("A {address}"));
        let aaaa = self.aaaa.iter().map(|address| format!("AAAA {address}"));
        let all: Vec<String> = cname.chain(a).chain(aaaa).collect();
        if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
    }
}

impl Problem {
    pub(super) fn who_words(&self) -> &'static str {
        if self.passes_by_itself() { "Time must pass" } else { w::who(&self.who) }
    }

    pub(super) fn is_error(&self) -> bool {
        self.severity == "error" && !self.passes_by_itself()
    }

    /// When the next attempt is.
    pub(super) fn retry(&self) -> Option<String> {
        // What it is seen from does not matter: only the moment itself is shown.
        self.retry_at.as_deref().and_then(|at| Moment::parse(at, UnixMillis(0))).map(|at| at.plain)
    }

    /// Nothing goes on before it is solved, and yet there is nothing to do about it.
    fn passes_by_itself(&self) -> bool {
        self.code == "DNS_PARTIAL"
    }
}
