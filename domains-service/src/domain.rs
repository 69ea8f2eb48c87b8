//! Custom domains: the rules, pure.
//!
//! [`name`] decides what may be attached, [`state`] how a domain moves between its states, [`redirect`] who sends
//! visitors where, [`schedule`] when it is checked next, [`proof`] what its owner must put into DNS. [`reconcile`] decides
//! what a check makes of a domain, [`order`] what an order for a certificate does. Nothing here asks a database, a resolver or
//! a clock.

pub(crate) mod failure;
pub(crate) mod kept;
pub(crate) mod name;
pub(crate) mod order;
pub(crate) mod problems;
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
use verification::problem::Problem;
use verification::verdict::Checks;

/// A domain of a project, everything we know of it.
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
    /// Whether it is the apex of its zone; `None` until DNS has been asked.
    pub(crate) is_apex: Option<bool>,
    /// The last look at DNS.
    pub(crate) checks: Option<Checks>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) certificate: CertificateState,
    /// The schedule of checks counts from here: creation, or the last time somebody asked for a check.
    pub(crate) watched_since: UnixMillis,
    pub(crate) checked_at: Option<UnixMillis>,
    /// The first failed check in a row of an active domain.
    pub(crate) failing_since: Option<UnixMillis>,
    /// When the worker looks next; `None`: only when asked.
    pub(crate) due_at: Option<UnixMillis>,
    pub(crate) lease_fence: i64,
    /// The revision whose acknowledgement by every live gateway ends the removal.
    pub(crate) removal: Option<u64>,
    /// Counts changes of configuration and status.
    pub(crate) rev: i64,
    pub(crate) created_at: UnixMillis,
    pub(crate) updated_at: UnixMillis,
    /// The first column of its row that cannot be read, when there is one: it is shown and can be removed, and is not
    /// saved.
    pub(crate) unreadable: Option<&'static str>,
}

impl Domain {
    /// A domain as it is when somebody adds it: nothing known, to be looked at now.
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
    pub(crate) fn enter(&mut self, status: Status, now: UnixMillis) {
        if self.status != status {
            self.status = status;
            self.status_since = now;
            self.touch(now);
        }
    }

    /// Notes a change that a client may conflict with.
    pub(crate) fn touch(&mut self, now: UnixMillis) {
        self.rev += 1;
        self.updated_at = now;
    }

    /// What the edge serves for the domain, given where its redirect leads at present (see
    /// [`redirect::destination`]). Nothing unless it is served.
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
    /// When its authority is asked again when it would like that (RFC 9773).
    #[serde(default)]
    pub(crate) advice_at: Option<UnixSeconds>,
    /// Until when the advice that `renew_at` follows holds, so that the moment is chosen once.
    #[serde(default)]
    pub(crate) advised_until: Option<UnixSeconds>,
    pub(crate) last_error: Option<String>,
    /// Failed attempts in a row.
    pub(crate) attempts: u32,
    pub(crate) next_attempt_at: Option<UnixSeconds>,
    /// Until when the authority, or our queue for it, makes the order wait.
    pub(crate) rate_limited_until: Option<UnixSeconds>,
    /// The authorities that are not to be asked yet.
    #[serde(default)]
    pub(crate) waiting: BTreeMap<String, Wait>,
}

/// Why an authority is not asked yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wait {
    pub(crate) until: UnixSeconds,
    /// Whether the order has a turn in our queue by then.
    pub(crate) queued: bool,
}

impl CertificateState {
    /// Whether a certificate is deployed and valid at `now`.
    pub(crate) fn is_valid(&self, now: UnixSeconds) -> bool {
        self.not_after.is_some_and(|end| now <= end)
    }
}
