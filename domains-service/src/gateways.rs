//! The gateways: their processes, and the keys by which their identities and passes are verified.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use chassis::guard::{TrustedKeys, pass_key};
use contract::feed::{Position, Revision};
use contract::token::{KeySet, SigningKey};
use parking_lot::Mutex;

use crate::common::Core;
use crate::config::Config;
use crate::identities::Identities;
use crate::nodes::{Nodes, invalid};
use crate::peers::Peers;
use crate::store::log::claim;
use crate::store::{Result, Write};

/// How long the answer to a change or a withdrawal waits for the gateways.
pub(crate) const ACKNOWLEDGEMENT_TIME_MAX: Duration = Duration::from_secs(1);

/// The gateways that follow this service, and the keys that they sign with.
pub(crate) struct Gateways {
    pub(crate) core: Arc<Core>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) peers: Peers,
    /// Signs operators' passes for services and for gateways.
    pub(crate) pass_key: SigningKey,
    /// Of all registered gateways: the keys that the public API and the dashboard trust.
    pub(crate) trusted: TrustedKeys,
    /// The keys of all registered gateways, as last looked up.
    pub(crate) identities: Mutex<Arc<Identities>>,
}

impl Gateways {
    /// No gateway, and no key of one.
    pub(crate) fn new(config: &Config, core: Arc<Core>) -> anyhow::Result<Self> {
        Ok(Self {
            nodes: Arc::new(Nodes::new(core.clock.clone())),
            peers: Peers::of(&core.store)?,
            pass_key: pass_key(&config.secret)?,
            trusted: TrustedKeys::none(),
            identities: Mutex::default(),
            core,
        })
    }

    /// Commits, and waits up to a second until every live gateway has applied the change, so that the caller gets its
    /// answer when the change is effective.
    pub(crate) async fn commit_everywhere(&self, write: Write) -> Result<()> {
        let revision = write.commit().await?;
        let learnt = self.nodes.acknowledged(revision, ACKNOWLEDGEMENT_TIME_MAX).await;
        if !learnt.lagging.is_empty() {
            tracing::warn!(
                revision = revision.0,
                gateways = learnt.lagging.join(", "),
                "these gateways have not confirmed a change within a second; answering without them. They apply it \
                 when they reach the control plane"
            );
        }
        Ok(())
    }

    /// The keys that verify operators' passes.
    pub(crate) fn passes(&self) -> KeySet {
        [self.pass_key.public().clone()].into_iter().collect()
    }

    /// Loads the registered gateway processes. Returns the newest revision, which is read before them.
    pub(crate) async fn load_processes(&self) -> Result<Revision> {
        let store = &self.core.store;
        let newest = store.newest_revision().await?;
        if store.has_gone_back() {
            self.went_back();
        }
        let revoked = store.revoked_gateways().await?;
        let mut processes = store.processes_seen_since(self.nodes.forgotten_before()).await?;
        let mut positions = self.nodes.positions();
        positions.extend(processes.iter().filter_map(|process| process.report.position()));
        let missing = claim::missing(&mut store.reader().acquire().await?, positions).await?;
        self.invalidate_at(&missing);
        for process in &mut processes {
            invalid::without(&mut process.report, &missing);
        }
        self.nodes.load_record(processes, &revoked);
        Ok(newest)
    }

    /// Discards confirmations at positions that the database lacks.
    pub(crate) fn invalidate_at(&self, missing: &HashSet<Position>) {
        let gateways = self.nodes.invalidate_at(missing);
        if !gateways.is_empty() {
            tracing::warn!(
                gateways = gateways.join(", "),
                "gateways applied revisions that the database lacks; withdrawals wait until each of them reports \
                 again. If an older database was restored, run `tollhouse node accept`"
            );
        }
    }

    /// The database went back to an earlier state. Withdrawals wait for every process until it reports again.
    pub(crate) fn went_back(&self) {
        tracing::error!(
            "the database went back to an earlier state; gateways refuse it, and withdrawals wait for each of them. Restore \
             the right database, or run `tollhouse node accept`"
        );
        self.nodes.invalidate_all();
    }
}
