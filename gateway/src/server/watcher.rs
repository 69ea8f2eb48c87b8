//! Reacts to changes of the replica: closes connections of removed names and of suspended projects, and updates the
//! operator's gauges.

use std::sync::Arc;

use chassis::clock::Clock as _;
use chassis::health::{Condition, Health};
use contract::feed::{AmongGateways, Change, Effect, Entity, Revision};
use contract::hostname::Hostname;
use contract::site::{Serves, Site};
use contract::time::UnixMillis;

use crate::clock::FleetClock;
use crate::telemetry::Telemetry;
use listener::Connections;
use quota::Quota;
use quota::store::Fleet;
use replica::follow::Watcher;
use replica::{Replica, Unregistered};

pub(super) struct EdgeWatcher {
    replica: Arc<Replica>,
    connections: Arc<Connections>,
    telemetry: Arc<Telemetry>,
    clock: Arc<FleetClock>,
    quota: Quota,
    present: Condition,
    /// Exists if the replica starts unregistered.
    registered: Option<Condition>,
}

impl EdgeWatcher {
    pub(super) fn new(
        replica: Arc<Replica>,
        connections: Arc<Connections>,
        telemetry: Arc<Telemetry>,
        (clock, quota): (Arc<FleetClock>, Quota),
        health: &Health,
    ) -> Self {
        let present = health.condition("replica");
        let registered = replica.unregistered().map(|_| health.condition("registered"));
        let watcher = Self { replica, connections, telemetry, clock, quota, present, registered };
        watcher.show();
        watcher
    }

    fn show(&self) {
        self.present.set(self.replica.is_present());
        if let Some(registered) = &self.registered {
            registered.set(self.replica.unregistered() != Some(Unregistered::Held));
        }
        self.telemetry.replica_revision.set(i64::try_from(self.replica.revision().0).unwrap_or(i64::MAX));
    }
}

impl Watcher for EdgeWatcher {
    fn retired(&self, hostnames: &[Hostname]) {
        self.show();
        if !hostnames.is_empty() {
            let closed = self.connections.close_where(|host| hostnames.contains(host));
            let names: Vec<&str> = hostnames.iter().map(Hostname::as_str).collect();
            tracing::info!(hostnames = names.join(", "), connections = closed, "stopped serving hostnames");
        }
    }

    fn applied(&self, changes: &[Change]) {
        self.telemetry.recent.changed(changes);
        let suspended = changes.iter().filter_map(|change| match &change.effect {
            Effect::Put(Entity::Project(project)) if project.suspended => Some(&project.id),
            _ => None,
        });
        for project in suspended {
            let is_its = |site: Arc<Site>| matches!(&site.serves, Serves::Project(id) if id == project);
            let closed = self.connections.close_where(|host| self.replica.site(host).is_some_and(is_its));
            tracing::info!(%project, connections = closed, "stopped serving a suspended project");
        }
    }

    fn replaced(&self) {
        self.show();
        let words = format!("a snapshot replaced the replica, revision {}", self.replica.revision());
        self.telemetry.recent.changes.record("replica", words);
        self.connections.close_where(|host| self.replica.site(host).is_none());
    }

    fn received(&self, _newest: Revision, at: UnixMillis, among: Option<AmongGateways>) {
        if let Some(AmongGateways { gateways, before }) = among {
            self.quota.announce_fleet(Fleet { nodes: gateways, index: before });
        }
        self.clock.received_from_control(at);
        // By our own clock, because the control plane's may be wrong.
        self.telemetry.feed_received.set(self.clock.now_seconds().0);
    }

    fn served(&self) {
        self.show();
        self.telemetry.recent.changes.record("control", "the control plane registered this gateway; serving requests");
    }

    fn refused(&self, reason: &'static str) {
        let words = format!("refused content of the change stream ({reason}); keeping the last good state");
        self.telemetry.recent.changes.record("replica", words);
        self.telemetry.replica_refused(reason);
    }
}
