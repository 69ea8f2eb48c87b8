//! The last minutes of the gateway, for operators: the busiest projects and their results ([`top`]), single requests
//! ([`requests`]), and changes ([`changes`]).
//!
//! Names of projects, hosts and keys may be stored here, because these are not metrics: everything is bounded, in
//! memory, and lost with the process. The access log has all of it. Nothing depends on this module; when it is full the
//! rarest and the oldest entries are dropped.

pub(crate) mod changes;
pub(crate) mod requests;
pub(crate) mod top;

use std::sync::Arc;
use std::time::Duration;

use chassis::clock::Clock;
use contract::feed::{Change, Effect, Entity, EntityName};

use self::changes::RecentChanges;
use self::requests::Requests;
use self::top::{By, Ended, Top};
use crate::facts::Facts;

/// The name in `top` for hosts, projects and keys that a request did not have, or that are not verified.
const NO_NAME: &str = "-";

/// The recent history of one gateway.
pub(crate) struct Recent {
    /// The busiest names.
    pub top: Top,
    /// Single requests.
    pub requests: Requests,
    /// Changes.
    pub changes: RecentChanges,
    clock: Arc<dyn Clock>,
}

impl Recent {
    /// An empty history with its start.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let changes = RecentChanges::new(clock.clone());
        changes.record("start", format!("version {} started", env!("CARGO_PKG_VERSION")));
        Self { top: Top::default(), requests: Requests::default(), changes, clock }
    }

    /// Records the end of a request, its time on the monotonic clock and duration, and its line of the access log.
    pub(crate) fn ended(&self, facts: &Facts, status: u16, (now, took): (Duration, Duration), line: &[u8]) {
        let ended = Ended { blame: facts.refused.map(contract::rejection::Rejection::blame), status, took };
        // Any client can send a host that is not served: it must not displace served ones.
        let host = facts.host.as_ref().filter(|_| facts.site.is_some()).map_or(NO_NAME, |host| host.as_str());
        let project =
            facts.caller.payer.as_ref().or(facts.project.as_ref()).map_or(NO_NAME, |project| project.id.as_str());
        let key = facts.caller.key.as_ref().map_or(NO_NAME, |key| key.id.as_str());
        let code = facts.refused.map_or_else(|| top::outcome(status), contract::rejection::Rejection::code);
        for (by, name) in [(By::Project, project), (By::Host, host), (By::Key, key), (By::Code, code)] {
            self.top.count(by, name, &ended, now);
        }
        self.requests.keep(facts.request_id.as_str(), ended.is_trouble(), line);
    }

    /// Records a refusal of the listener, which has no known project.
    pub(crate) fn refused_by_listener(&self, request_id: &str, rejection: contract::rejection::Rejection, line: &[u8]) {
        let ended = Ended { blame: Some(rejection.blame()), status: rejection.status(), took: Duration::ZERO };
        let now = self.clock.monotonic();
        for (by, name) in
            [(By::Project, NO_NAME), (By::Host, NO_NAME), (By::Key, NO_NAME), (By::Code, rejection.code())]
        {
            self.top.count(by, name, &ended, now);
        }
        self.requests.keep(request_id, true, line);
    }

    /// Records changes of the control plane. Proofs for certificate authorities change every minute and are omitted.
    pub(crate) fn changed(&self, changes: &[Change]) {
        for change in changes {
            let (verb, name) = match &change.effect {
                Effect::Put(entity) => ("published", of_entity(entity)),
                Effect::Remove(EntityName::Challenge(_)) => continue,
                Effect::Remove(EntityName::Project(id)) => ("removed", Some(format!("project {id}"))),
                Effect::Remove(EntityName::Site(host)) => ("removed", Some(format!("host {host}"))),
                Effect::Remove(EntityName::Key(_)) => ("removed", Some("a key".to_owned())),
                Effect::Remove(EntityName::Certificate(host)) => ("removed", Some(format!("certificate of {host}"))),
            };
            if let Some(name) = name {
                self.changes.record_at(change.at, "change", format!("revision {}: {verb} {name}", change.revision));
            }
        }
    }
}

/// Describes an entity; a key by its public id.
fn of_entity(entity: &Entity) -> Option<String> {
    match entity {
        Entity::Project(project) => {
            let suspended = if project.suspended { ", suspended" } else { "" };
            Some(format!("project {} ({} plan{suspended})", project.id, project.plan))
        }
        Entity::Site(site) => Some(format!("host {}", site.hostname)),
        Entity::Key(key) => Some(format!("{} of project {}", key.id.as_str(), key.project)),
        Entity::Certificate(bundle) => Some(format!("certificate of {}", bundle.hostname)),
        Entity::Challenge(_) => None,
    }
}
