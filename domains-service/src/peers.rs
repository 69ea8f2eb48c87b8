//! Notifications between the replicas of this service over one PostgreSQL.
//!
//! Notifications of the database carry two messages: a committed revision, which wakes the followers of every replica,
//! and a gateway's report, so that a removal waits for gateways whichever replica they report to. The notification of a
//! commit is part of its transaction.
//!
//! Over SQLite there is one process and no notification. When notifications are interrupted, each follower's poll finds
//! changes once a second, and only the replica that receives a gateway's reports ends a removal.

use std::sync::Arc;
use std::time::Duration;

use chassis::shutdown::Shutdown;
use contract::feed::NodeReport;
use serde::{Deserialize, Serialize};

use crate::nodes::Nodes;
use crate::store::notices::Notice;
use crate::store::{Result, Store};

/// Longest delay of a gateway's report by its notification.
const SEND_TIME_MAX: Duration = Duration::from_secs(1);

/// Gateways report every second, so after this silence the connection may be dead.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Pause before the next attempt to listen.
const LISTEN_PAUSE: Duration = Duration::from_millis(250);

/// A gateway's report, sent to the other replicas.
#[derive(Debug, Serialize, Deserialize)]
struct PeerReport {
    /// The replica that received it, which ignores the notification.
    replica: String,
    report: NodeReport,
    /// Whether the process is in the database.
    on_record: bool,
}

/// The other replicas over the store of this one.
#[derive(Clone)]
pub(crate) struct Peers {
    store: Store,
    /// The name of this replica, new at each start.
    replica: Arc<str>,
}

impl Peers {
    /// The replicas over this store.
    pub(crate) fn of(store: &Store) -> anyhow::Result<Self> {
        let replica = u64::from_be_bytes(chassis::random::bytes()?);
        Ok(Self { store: store.clone(), replica: format!("{replica:016x}").into() })
    }

    /// Sends a gateway's report to the other replicas. The gateway's next report repeats a lost one.
    pub(crate) async fn send(&self, report: &NodeReport, on_record: bool) {
        if !self.store.is_shared() {
            return;
        }
        let sent = PeerReport { replica: self.replica.to_string(), report: report.clone(), on_record };
        let text = serde_json::to_string(&sent).unwrap_or_default();
        match tokio::time::timeout(SEND_TIME_MAX, self.store.notify_replicas(&text)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "cannot pass a gateway's report to other replicas"),
            Err(_) => tracing::debug!("cannot pass a gateway's report to other replicas in time"),
        }
    }

    /// Listens to the other replicas until `shutdown`.
    pub(crate) async fn listen(self, nodes: Arc<Nodes>, shutdown: Shutdown) {
        if !self.store.is_shared() {
            return;
        }
        let mut connected = true;
        while !shutdown.has_begun() {
            let ended = tokio::select! {
                () = shutdown.begun() => return,
                ended = self.listen_once(&nodes) => ended,
            };
            match ended {
                Ok(()) => connected = true,
                Err(error) if std::mem::replace(&mut connected, false) => {
                    tracing::warn!(%error, "lost notifications of other replicas; reading changes every second");
                }
                Err(error) => tracing::debug!(%error, "still no notifications of other replicas"),
            }
            shutdown.pause(LISTEN_PAUSE).await;
        }
    }

    /// Listens on one connection until it is silent for [`SILENCE_MAX`].
    async fn listen_once(&self, nodes: &Nodes) -> Result<()> {
        let Some(mut notices) = self.store.notices().await? else { return Ok(()) };
        // Commits from before this connection listened.
        self.store.committed_elsewhere(self.store.newest_revision().await?);
        loop {
            match tokio::time::timeout(SILENCE_MAX, notices.next()).await {
                Ok(Ok(Some(Notice::Committed(revision)))) => self.store.committed_elsewhere(revision),
                Ok(Ok(Some(Notice::Report(text)))) => self.receive(nodes, &text),
                Ok(Ok(None)) | Err(_) => return Ok(()),
                Ok(Err(error)) => return Err(error),
            }
        }
    }

    fn receive(&self, nodes: &Nodes, text: &str) {
        match serde_json::from_str::<PeerReport>(text) {
            Ok(sent) if *sent.replica != *self.replica => nodes.report_from_replica(sent.report, sent.on_record),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "ignored a malformed notification"),
        }
    }
}
