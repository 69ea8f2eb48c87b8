//! The audit log: events of a project, for its owner.

use chassis::sql::{query, query_as, query_scalar};
use contract::hostname::Hostname;
use contract::time::UnixMillis;
use domains_api::types::Event;

use super::credentials::GOOD_OPERATOR;
use super::rows::{self, Columns, ReadKey, Stored, Table};
use super::write::Done;
use super::{Result, Store, StoreError, Write, kept, webhooks, with_project};
use crate::actor::Actor;
use crate::project::ProjectRef;

/// Events kept of one project, whatever their age.
const EVENTS_PER_PROJECT_MAX: i64 = 100_000;

/// Events left after a deletion of the oldest, so that the next deletion is not needed soon.
const EVENTS_LEFT: i64 = 90_000;

/// Events listed at once.
pub(crate) const EVENTS_PER_PAGE: i64 = 200;

/// An event, and the project it happened in.
#[derive(Clone, Debug)]
pub(crate) struct Through {
    /// The project's identity.
    pub(crate) project: String,
    /// Its name; `None` if it is erased or was not requested.
    pub(crate) project_name: Option<String>,
    /// The gateway that it came through.
    pub(crate) gateway: Option<String>,
    pub(crate) event: Event,
}

impl Stored for Through {
    const KEY: ReadKey = |row| rows::key(Table::Events, row.get::<i64>("id").to_string(), row.text("project"));

    fn read(row: &mut Columns<'_>) -> Option<Self> {
        let event = Event {
            id: row.get("id"),
            domain: row.get("domain"),
            kind: row.get("kind"),
            actor: row.get("actor"),
            client: row.get("client"),
            // The event is useful without its details.
            detail: row.json("detail").unwrap_or_else(|| serde_json::json!({})),
            at: row.time("at_ms").into(),
        };
        let (project, project_name) = (row.get("project"), row.get("project_name"));
        Some(Self { project, project_name, gateway: row.get("gateway"), event })
    }
}

impl Write {
    /// Whether the actor's credential is valid in this transaction. A key that the actor itself revoked counts as
    /// valid.
    async fn may_still(&mut self, actor: &Actor) -> Result<bool> {
        let now = self.now().0;
        let good = [
            (actor.key(), "SELECT COUNT(*) FROM api_keys WHERE id = $1 AND (revoked_at IS NULL OR revoked_at >= $2)"),
            (actor.operator(), GOOD_OPERATOR),
            (
                actor.gateway(),
                "SELECT COUNT(*) FROM credentials
                 WHERE kind = 'gateway' AND name = $1 AND (revoked_at IS NULL OR revoked_at > $2)",
            ),
        ];
        for (name, statement) in good {
            let Some(name) = name else { continue };
            let found: i64 = query_scalar(statement).bind((name, now)).fetch_one(self.connection()).await?;
            if found == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes an event and the messages to its subscribers; they exist if and only if the transaction commits.
    ///
    /// # Errors
    /// [`StoreError::ActorRevoked`] when the actor's key, token or gateway was revoked since it was authenticated.
    pub(crate) async fn record(
        &mut self,
        project: &ProjectRef,
        domain: Option<&Hostname>,
        kind: &str,
        actor: &Actor,
        detail: serde_json::Value,
    ) -> Result<()> {
        if !self.may_still(actor).await? {
            return Err(StoreError::ActorRevoked);
        }
        let now = self.now();
        let id: i64 = query_scalar(
            "INSERT INTO events (project, domain, kind, actor, client, detail, at_ms, gateway)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id",
        )
        .bind((
            project.uid.as_str(),
            domain.map(Hostname::as_str),
            kind,
            actor.name(),
            actor.client().map(|client| client.to_string()),
            detail.to_string(),
            now.0,
            actor.gateway(),
        ))
        .fetch_one(self.connection())
        .await?;
        if actor.name() != Actor::system().name() {
            let (project, actor) = (project.clone(), actor.clone());
            self.log_on_commit(Done { kind: kind.to_owned(), project, domain: domain.cloned(), actor });
        }
        self.bound_events(project).await?;
        webhooks::enqueue(self, project, domain, kind, &detail, id).await
    }

    /// Counts the event, and deletes the oldest ones of a project with more than [`EVENTS_PER_PROJECT_MAX`].
    async fn bound_events(&mut self, project: &ProjectRef) -> Result<()> {
        let owner = format!("events {}", project.uid);
        if kept::one_more(self.connection(), &owner).await? <= EVENTS_PER_PROJECT_MAX {
            return Ok(());
        }
        let delete_oldest = query(
            "DELETE FROM events WHERE project = $1
                 AND id <= (SELECT id FROM events WHERE project = $1 ORDER BY id DESC LIMIT 1 OFFSET $2)",
        );
        delete_oldest.bind((project.uid.as_str(), EVENTS_LEFT)).execute(self.connection()).await?;
        let left = query_scalar("SELECT COUNT(*) FROM events WHERE project = $1");
        let left: i64 = left.bind(project.uid.as_str()).fetch_one(self.connection()).await?;
        kept::put_right(self.connection(), &owner, left).await
    }

    /// Deletes events from before `before`.
    pub(crate) async fn forget_events(&mut self, before: UnixMillis) -> Result<()> {
        query("DELETE FROM events WHERE at_ms < $1").bind(before.0).execute(self.connection()).await?;
        // Of projects that are gone, once their last event is.
        query(
            "DELETE FROM kept_rows WHERE owner LIKE 'events %'
                 AND NOT EXISTS (SELECT 1 FROM events WHERE project = SUBSTR(kept_rows.owner, 8))",
        )
        .run(self.connection())
        .await
    }
}

impl Store {
    /// A project's events, newest first: of one domain and below the event `before`, where given.
    pub(crate) async fn events(
        &self,
        project: &ProjectRef,
        domain: Option<&Hostname>,
        before: Option<i64>,
    ) -> Result<Vec<Through>> {
        let found = query_as(
            "SELECT *, NULL AS project_name FROM events
             WHERE project = $1 AND ($2 IS NULL OR domain = $2) AND id < $3 ORDER BY id DESC LIMIT $4",
        )
        .bind((
            project.uid.as_str(),
            domain.map(Hostname::as_str),
            before.unwrap_or(i64::MAX),
            EVENTS_PER_PAGE,
        ));
        rows::all(self.reader(), found).await
    }

    /// Changes through a gateway since a time, in all projects, newest first, below the event `before` if given.
    pub(crate) async fn changes_through(
        &self,
        gateway: &str,
        since: UnixMillis,
        before: Option<i64>,
    ) -> Result<Vec<Through>> {
        let found =
            query_as(with_project!("events WHERE gateway = $1 AND at_ms >= $2 AND id < $3 ORDER BY id DESC LIMIT $4"));
        rows::all(self.reader(), found.bind((gateway, since.0, before.unwrap_or(i64::MAX), EVENTS_PER_PAGE))).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chassis::clock::ManualClock;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_project_keeps_a_maximum_of_events_the_newest() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(UnixMillis(1_000)));
        let store = Store::open(&directory.path().join("db.sqlite").into(), clock).await.unwrap();
        sqlx::raw_sql(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 99999)
             INSERT INTO events (project, kind, actor, detail, at_ms) SELECT 'demo', 'old', 'system', '{}', 1 FROM n;
             INSERT INTO events (project, kind, actor, detail, at_ms) VALUES ('other', 'old', 'system', '{}', 1);
             INSERT INTO kept_rows (owner, kept) VALUES ('events demo', 99999), ('events other', 1);",
        )
        .execute(store.writer().sqlite().unwrap())
        .await
        .unwrap();
        let project: ProjectRef = "demo".parse().unwrap();
        for expected in [100_000, 90_000, 90_001] {
            let mut write = store.write().await.unwrap();
            write.record(&project, None, "project.changed", &Actor::system(), json!({})).await.unwrap();
            write.commit().await.unwrap();
            let count = query_scalar("SELECT COUNT(*) FROM events WHERE project = 'demo'");
            let count: i64 = count.fetch_one(store.reader()).await.unwrap();
            assert_eq!(count, expected);
        }
        let newest = store.events(&project, None, None).await.unwrap();
        assert_eq!(newest.iter().take(4).filter(|one| one.event.kind == "project.changed").count(), 3);
        let others = query_scalar("SELECT COUNT(*) FROM events WHERE project = 'other'");
        assert_eq!(Ok::<i64, ()>(1), others.fetch_one(store.reader()).await.map_err(|_| ()));
        // Age deletes events too, and the last event of a project deletes its count.
        let mut write = store.write().await.unwrap();
        write.forget_events(UnixMillis(2_000)).await.unwrap();
        write.commit().await.unwrap();
        let counts = query_scalar("SELECT COUNT(*) FROM kept_rows");
        assert_eq!(Ok::<i64, ()>(0), counts.fetch_one(store.reader()).await.map_err(|_| ()));
    }
}
