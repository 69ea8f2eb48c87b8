//! What happened, for a project's owner: the audit log.

use chassis::sql::{query, query_as, query_scalar};
use contract::hostname::Hostname;
use contract::project::ProjectId;
use contract::time::UnixMillis;

use super::{Store, StoreError, Write, read_json, webhooks};
use crate::actor::Actor;

/// Events listed at once.
pub(crate) const EVENTS_PER_PAGE: i64 = 200;

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) id: i64,
    pub(crate) domain: Option<String>,
    pub(crate) kind: String,
    pub(crate) actor: String,
    pub(crate) client: Option<String>,
    pub(crate) detail: serde_json::Value,
    pub(crate) at: UnixMillis,
}

chassis::record! {
    struct Row {
        id: i64,
        domain: Option<String>,
        kind: String,
        actor: String,
        client: Option<String>,
        detail: String,
        at_ms: i64,
    }
}

impl Write {
    /// Writes an event, and the messages to those who want to be told; they exist if and only if the transaction
    /// commits.
    pub(crate) async fn record(
        &mut self,
        project: &ProjectId,
        domain: Option<&Hostname>,
        kind: &str,
        actor: &Actor,
        detail: serde_json::Value,
    ) -> Result<(), StoreError> {
        let now = self.now();
        let id: i64 = query_scalar(
            "INSERT INTO events (project, domain, kind, actor, client, detail, at_ms)
             VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id",
        )
        .bind(project.as_str())
        .bind(domain.map(Hostname::as_str))
        .bind(kind)
        .bind(actor.name())
        .bind(actor.client().map(|client| client.to_string()))
        .bind(detail.to_string())
        .bind(now.0)
        .fetch_one(self.connection())
        .await?;
        webhooks::enqueue(self, project, domain, kind, &detail, id).await
    }

    /// Forgets events from before `before`.
    pub(crate) async fn forget_events(&mut self, before: UnixMillis) -> Result<(), StoreError> {
        query("DELETE FROM events WHERE at_ms < $1").bind(before.0).execute(self.connection()).await?;
        Ok(())
    }
}

impl Store {
    /// A project's events, newest first, of one domain when given, below event `before` when given.
    pub(crate) async fn events(
        &self,
        project: &ProjectId,
        domain: Option<&Hostname>,
        before: Option<i64>,
    ) -> Result<Vec<Event>, StoreError> {
        let rows: Vec<Row> = query_as(
            "SELECT id, domain, kind, actor, client, detail, at_ms FROM events
             WHERE project = $1 AND ($2 IS NULL OR domain = $2) AND id < $3 ORDER BY id DESC LIMIT $4",
        )
        .bind(project.as_str())
        .bind(domain.map(Hostname::as_str))
        .bind(before.unwrap_or(i64::MAX))
        .bind(EVENTS_PER_PAGE)
        .fetch_all(self.reader())
        .await?;
        let events = rows.into_iter().map(|row| {
            Ok(Event {
                id: row.id,
                domain: row.domain,
                kind: row.kind,
                actor: row.actor,
                client: row.client,
                detail: read_json(&row.detail, "event")?,
                at: UnixMillis(row.at_ms),
            })
        });
        events.collect()
    }
}
