//! The other replicas of this service over one PostgreSQL: what they must hear at once.
//!
//! Two things are told through the database's notifications: that a revision was committed, so that followers of every
//! replica are woken, and how far a gateway has come, so that a removal waits for gateways whichever replica they
//! report to. A notification of a commit is part of its transaction.
//!
//! Over SQLite there is one process and nothing to tell. When the notifications are interrupted, changes are found by
//! the look that every follower's stream takes each second, and a removal is finished by the replica that its gateways report
//! to.

use std::sync::Arc;
use std::time::Duration;

use chassis::shutdown::Shutdown;
use chassis::sql::{Pool, query};
use contract::feed::{NodeReport, Revision};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::{PgListener, PgNotification};

use crate::app::App;
use crate::store::{Store, StoreError};

/// The channel of committed revisions.
pub(crate) const CHANGES: &str = "tollhouse_changes";

/// The channel of gateways' reports.
const REPORTS: &str = "tollhouse_reports";

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

/// Telling the other replicas.
pub(crate) struct Peers {
    pool: Option<Pool>,
    replica: String,
}

impl Peers {
    /// The replicas over this store.
    pub(crate) fn of(store: &Store) -> anyhow::Result<Self> {
        let replica = chassis::random::bytes::<8>()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let pool = store.reader().postgres().map(|_| store.reader().clone());
        Ok(Self { pool, replica })
    }

    /// Tells how far a gateway has come. What does not get through is repeated with the gateway's next report.
    pub(crate) async fn tell(&self, report: &NodeReport, on_record: bool) {
        let Some(pool) = &self.pool else { return };
        let told = Told { replica: self.replica.clone(), report: report.clone(), on_record };
        let text = serde_json::to_string(&told).unwrap_or_default();
        let telling = query("SELECT pg_notify($1, $2)").bind(REPORTS).bind(text).execute(pool);
        match tokio::time::timeout(TELL_WAIT_MAX, telling).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "other replicas were not told of a gateway"),
            Err(_) => tracing::debug!("other replicas were not told of a gateway in time"),
        }
    }
}

/// Listens to the other replicas until `shutdown`.
pub(crate) async fn listen(app: Arc<App>, shutdown: Shutdown) {
    let Some(pool) = app.store.reader().postgres().cloned() else { return };
    let mut heard = true;
    while !shutdown.has_begun() {
        let ended = tokio::select! {
            () = shutdown.begun() => return,
            ended = listen_once(&app, &pool) => ended,
        };
        match ended {
            Ok(()) => heard = true,
            Err(error) if std::mem::replace(&mut heard, false) => {
                tracing::warn!(%error, "other replicas are not heard; changes are looked for every second");
            }
            Err(error) => tracing::debug!(%error, "other replicas are still not heard"),
        }
        tokio::select! {
            () = shutdown.begun() => return,
            () = tokio::time::sleep(LISTEN_PAUSE) => {}
        }
    }
}

/// Listens on one connection, until it says nothing for a while.
async fn listen_once(app: &App, pool: &PgPool) -> Result<(), StoreError> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen_all([CHANGES, REPORTS]).await?;
    // What was committed while nobody listened.
    app.store.heard_of(app.store.newest_revision().await?);
    loop {
        match tokio::time::timeout(SILENCE_MAX, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => hear(app, &notification),
            Ok(Ok(None)) | Err(_) => return Ok(()),
            Ok(Err(error)) => return Err(error.into()),
        }
    }
}

fn hear(app: &App, notification: &PgNotification) {
    let payload = notification.payload();
    if notification.channel() == CHANGES {
        if let Ok(revision) = payload.parse() {
            app.store.heard_of(Revision(revision));
        }
        return;
    }
    match serde_json::from_str::<Told>(payload) {
        Ok(told) if told.replica != app.peers.replica => app.nodes.overhear(told.report, told.on_record),
        Ok(_) => {}
        Err(error) => tracing::debug!(%error, "a notification is no gateway's report"),
    }
}
