//! Custom domains: the rules, pure.
//!
//! [`name`] decides which names can be attached, [`state`] how a domain changes its state, [`redirect`] where visitors
//! are redirected, [`schedule`] when DNS is checked next, [`proof`] which records the owner must create. [`reconcile`]
//! applies a DNS check to a domain, and [`order`] the result of a certificate order. Nothing here calls a database, a
//! resolver or a clock.

pub(crate) mod failure;
pub(crate) mod kept;
pub(crate) mod name;
pub(crate) mod order;
pub(crate) mod proof;
pub(crate) mod reconcile;
pub(crate) mod redirect;
pub(crate) mod schedule;
pub(crate) mod state;

use std::collections::BTreeMap;

use contract::hostname::Hostname;
use contract::site::{RedirectStatus, Serves, Site};
use contract::time::{UnixMillis, UnixSeconds};
pub(crate) use domains_api::types::CertificateStatus;
use serde::{Deserialize, Serialize};

use crate::project::ProjectRef;
pub(crate) use redirect::{RedirectRule, RedirectTarget};
pub(crate) use state::Status;
use verification::problem::{Problem, ProblemCode, Severity, Who};
use verification::verdict::Checks;

/// A domain of a project, with all stored facts.
#[derive(Clone, Debug)]
pub(crate) struct Domain {
    pub(crate) name: Hostname,
    pub(crate) project: ProjectRef,
    pub(crate) status: Status,
    pub(crate) status_since: UnixMillis,
    /// The project's canonical name.
    pub(crate) primary: bool,
    /// It becomes the primary one when it becomes active.
    pub(crate) primary_wanted: bool,
    pub(crate) redirect: Option<RedirectRule>,
    /// Whether it is the apex of its zone; `None` before the first DNS check.
    pub(crate) is_apex: Option<bool>,
    /// The last check of DNS.
    pub(crate) checks: Option<Checks>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) certificate: CertificateState,
    /// Start of the schedule of checks: creation, or the last check that the owner requested.
    pub(crate) watched_since: UnixMillis,
    pub(crate) checked_at: Option<UnixMillis>,
    /// The first failed check in a row of an active domain.
    pub(crate) failing_since: Option<UnixMillis>,
    /// Since when only the certificate is missing, and its owner can do nothing about that.
    pub(crate) waits_since: Option<UnixMillis>,
    /// The time of the next check; `None`: it is being removed.
    pub(crate) due_at: Option<UnixMillis>,
    pub(crate) lease_fence: i64,
    /// The removal's revision; the removal ends when every live gateway has confirmed it.
    pub(crate) removal: Option<u64>,
    /// Counts changes of configuration and status.
    pub(crate) rev: i64,
    pub(crate) created_at: UnixMillis,
    pub(crate) updated_at: UnixMillis,
    /// The first unreadable column of its row, if any. Such a domain can be shown and removed, and is not saved.
    pub(crate) unreadable: Option<&'static str>,
}

impl Domain {
    /// A new domain: nothing is known about it, and its first check is due now.
    pub(crate) fn added(name: Hostname, project: ProjectRef, now: UnixMillis) -> Self {
        Self {
            name,
            project,
            status: Status::PendingDns,
            status_since: now,
            primary: false,
            primary_wanted: false,
            redirect: None,
            is_apex: None,
            checks: None,
            problems: Vec::new(),
            certificate: CertificateState::default(),
            watched_since: now,
            checked_at: None,
            failing_since: None,
            waits_since: None,
            due_at: Some(now),
            lease_fence: 0,
            removal: None,
            rev: 1,
            created_at: now,
            updated_at: now,
            unreadable: None,
        }
    }

    /// Moves the domain to a state, from now.
    pub(crate) fn set_status(&mut self, status: Status, now: UnixMillis) {
        if self.status != status {
            self.status = status;
            self.status_since = now;
            self.touch(now);
        }
    }

    /// Updates `waits_since`. `is_ready`: records, ownership and CAA pass, and the name does not wait behind its
    /// owner's own orders.
    pub(crate) fn record_wait(&mut self, is_ready: bool, now: UnixMillis) {
        let owner_acts = |problem: &Problem| problem.who == Who::You && problem.severity == Severity::Error;
        let owner_acts = self.problems.iter().any(|one| owner_acts(one) && one.code != ProblemCode::CertDelayed);
        let waits = is_ready && !self.certificate.is_valid(now.to_seconds()) && !owner_acts;
        self.waits_since = waits.then(|| self.waits_since.unwrap_or(now));
    }

    /// Counts a change that a client's conditional request may conflict with.
    pub(crate) fn touch(&mut self, now: UnixMillis) {
        self.rev += 1;
        self.updated_at = now;
    }

    /// The site that the edge serves for the domain, with its redirect's present target (see
    /// [`redirect::destination`]). `None` unless the domain is served.
    pub(crate) fn site(&self, redirect: Option<(Hostname, Option<RedirectStatus>)>) -> Option<Site> {
        self.status.is_served().then(|| Site {
            hostname: self.name.clone(),
            serves: Serves::Project(self.project.name.clone()),
            redirect: redirect.map(|(to, status)| contract::site::Redirect { to, status }),
        })
    }
}

/// A domain's certificate, as its owner sees it. Times are RFC 3339 on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CertificateState {
    pub(crate) status: CertificateStatus,
    pub(crate) ca: Option<String>,
    pub(crate) serial: Option<String>,
    pub(crate) not_before: Option<UnixSeconds>,
    pub(crate) not_after: Option<UnixSeconds>,
    pub(crate) key_type: Option<String>,
    /// When it will be renewed.
    pub(crate) renew_at: Option<UnixSeconds>,
    /// When the authority is next asked for the best time of renewal (RFC 9773).
    pub(crate) advice_at: Option<UnixSeconds>,
    /// Until when the advice behind `renew_at` is valid, so that a time is chosen once per advice.
    pub(crate) advised_until: Option<UnixSeconds>,
    pub(crate) last_error: Option<String>,
    /// Failed attempts in a row.
    pub(crate) attempts: u32,
    pub(crate) next_attempt_at: Option<UnixSeconds>,
    /// Until when the order waits because the authority limits us.
    pub(crate) rate_limited_until: Option<UnixSeconds>,
    /// Authorities that must not be asked before a time.
    #[serde(default)]
    pub(crate) waiting: BTreeMap<String, UnixSeconds>,
    /// Whether the order waits for its turn in a queue of ours, which makes the domain due.
    #[serde(default)]
    pub(crate) queued: bool,
}

impl CertificateState {
    /// Whether a certificate is deployed and valid at `now`.
    pub(crate) fn is_valid(&self, now: UnixSeconds) -> bool {
        self.not_after.is_some_and(|end| now <= end)
    }
}
