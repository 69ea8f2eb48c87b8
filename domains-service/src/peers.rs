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
use crate::store::{Store, StoreError};

/// How long telling may hold up a gateway that reports.
const TELL_WAIT_MAX: Duration = Duration::from_secs(1);

/// Gateways report every second, so a silence of this length may be a connection that leads nowhere.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Before the next attempt to listen.
const LISTEN_PAUSE: Duration = Duration::from_millis(250);

/// A gateway's report on its way to the other replicas.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    /// The replica it was made to, which knows already.
    replica: String,
    report: NodeReport,
    /// Whether the database was told of the process.
    on_record: bool,
}

/// The other replicas over the store of this one.
#[derive(Clone)]
pub(crate) struct Peers {
    store: Store,
    /// The name of this replica: another one at each start.
    replica: Arc<str>,
}

impl Peers {
    /// The replicas over this store.
    pub(crate) fn of(store: &Store) -> anyhow::Result<Self> {
        let replica: String = chassis::random::bytes::<8>()?.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { store: store.clone(), replica: replica.into() })
    }

    /// Tells how far a gateway has come. What does not get through is repeated with the gateway's next report.
    pub(crate) async fn tell(&self, report: &NodeReport, on_record: bool) {
        if !self.store.is_shared() {
            return;
        }
        let told = Told { replica: self.replica.to_string(), report: report.clone(), on_record };
        let text = serde_json::to_string(&told).unwrap_or_default();
        match tokio::time::timeout(TELL_WAIT_MAX, self.store.tell_replicas(&text)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "could not pass a gateway's report to other replicas"),
            Err(_) => tracing::debug!("could not pass a gateway's report to other replicas in time"),
        }
    }

    /// Listens to the other replicas until `shutdown`.
    pub(crate) async fn listen(self, nodes: Arc<Nodes>, shutdown: Shutdown) {
        if !self.store.is_shared() {
            return;
        }
        let mut heard = true;
        while !shutdown.has_begun() {
            let ended = tokio::select! {
                () = shutdown.begun() => return,
                ended = self.listen_once(&nodes) => ended,
            };
            match ended {
                Ok(()) => heard = true,
                Err(error) if std::mem::replace(&mut heard, false) => {
                    tracing::warn!(%error, "lost notifications of other replicas; reading changes every second");
                }
                Err(error) => tracing::debug!(%error, "still no notifications of other replicas"),
            }
            tokio::select! {
                () = shutdown.begun() => return,
                () = tokio::time::sleep(LISTEN_PAUSE) => {}
            }
        }
    }

    /// Listens on one connection, until it says nothing for a while.
    async fn listen_once(&self, nodes: &Nodes) -> Result<(), StoreError> {
        let Some(mut notices) = self.store.notices().await? else { return Ok(()) };
        // Commits before this connection began to listen.
        self.store.heard_of(self.store.newest_revision().await?);
        loop {
            match tokio::time::timeout(SILENCE_MAX, notices.next()).await {
                Ok(Ok(Some(Notice::Committed(revision)))) => self.store.heard_of(revision),
                Ok(Ok(Some(Notice::Report(text)))) => self.receive(nodes, &text),
                Ok(Ok(None)) | Err(_) => return Ok(()),
                Ok(Err(error)) => return Err(error),
            }
        }
    }

    fn receive(&self, nodes: &Nodes, text: &str) {
        match serde_json::from_str::<Told>(text) {
            Ok(told) if *told.replica != *self.replica => nodes.report_from_replica(told.report, told.on_record),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "ignored a malformed notification"),
        }
    }
}
