//! Present and former holders of a name.

use chassis::sql::{Connection, Found, query, query_as};
use contract::hostname::Hostname;
use contract::time::UnixMillis;

use super::super::Result;
use super::super::rows::{self, Columns, ReadKey, Stored, Table};
use crate::project::ProjectRef;

/// Names of one project that it had and that are remembered.
pub(crate) const TOMBSTONES_PER_PROJECT_MAX: i64 = 10_000;

/// The present holder of a name, and the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameClaims {
    /// The project that holds it.
    pub(crate) holder: Option<ProjectRef>,
    /// The lineage of the project that held it before.
    pub(crate) lineage: Option<String>,
    /// For a name under `.localhost`, which no project can prove: the project with names above, below or beside it,
    /// because their pages share cookies.
    pub(crate) beside: Option<ProjectRef>,
}

impl NameClaims {
    /// Whether a project must prove that the name is its own: another project has or had it.
    pub(crate) fn contest(&self, project: &ProjectRef, salt: &str) -> bool {
        match (&self.holder, &self.beside) {
            (Some(holder), _) => holder != project,
            (None, Some(beside)) if beside != project => true,
            _ => self.lineage.as_deref().is_some_and(|lineage| lineage != salt),
        }
    }
}

/// The claims on a name.
pub(crate) async fn find_claims(connection: &mut Connection, name: &Hostname) -> Result<NameClaims> {
    let holder = query_as("SELECT p.id, p.name FROM holders h JOIN projects p ON p.id = h.project WHERE h.name = $1");
    let holder = rows::one(&mut *connection, holder.bind(name.as_str())).await?;
    let lineage = query_as("SELECT lineage FROM tombstones WHERE name = $1");
    let lineage: Option<Found<(String,)>> = lineage.bind(name.as_str()).fetch_optional(&mut *connection).await?;
    // An unreadable lineage counts as absent: the next project must prove that the name is its own.
    let lineage = lineage.map(|found| found.row.0);
    let beside = match local_zone(name) {
        Some(zone) => holder_below(connection, zone).await?,
        None => None,
    };
    Ok(NameClaims { holder, lineage, beside })
}

/// The part of a name under `.localhost` that an owner would have registered.
fn local_zone(name: &Hostname) -> Option<&str> {
    let above = name.as_str().strip_suffix(".localhost")?;
    let labels = above.rsplit_once('.').map_or(0, |(below, _)| below.len() + 1);
    name.as_str().get(labels..)
}

/// The project that holds names at or below `zone`.
async fn holder_below(connection: &mut Connection, zone: &str) -> Result<Option<ProjectRef>> {
    let holder = query_as(
        "SELECT p.id, p.name FROM holders h JOIN projects p ON p.id = h.project
         WHERE h.name = $1 OR h.name LIKE '%.' || $1 ORDER BY h.name LIMIT 1",
    );
    rows::one(connection, holder.bind(zone)).await
}

impl Stored for ProjectRef {
    const IS_PART: bool = true;
    const KEY: ReadKey = |row| rows::key(Table::Projects, row.text("id"), "");

    fn read(row: &mut Columns<'_>) -> Option<Self> {
        row.project("id", "name")
    }
}

/// Gives a name to a project.
pub(crate) async fn set_holder(connection: &mut Connection, name: &Hostname, project: &ProjectRef) -> Result<()> {
    let hold = query(
        "INSERT INTO holders (name, project) VALUES ($1, $2)
         ON CONFLICT (name) DO UPDATE SET project = excluded.project",
    );
    hold.bind((name.as_str(), project.uid.as_str())).execute(&mut *connection).await?;
    query("DELETE FROM tombstones WHERE name = $1").bind(name.as_str()).run(connection).await
}

/// Releases a name if the project holds it, and stores the former holder.
pub(crate) async fn release(
    connection: &mut Connection,
    name: &Hostname,
    project: &ProjectRef,
    lineage: &str,
    now: UnixMillis,
) -> Result<()> {
    let held = query("DELETE FROM holders WHERE name = $1 AND project = $2");
    let held = held.bind((name.as_str(), project.uid.as_str())).execute(&mut *connection).await?;
    if held.rows_affected() == 0 {
        return Ok(());
    }
    let tombstone = query(
        "INSERT INTO tombstones (name, lineage, removed_at, is_apex)
         VALUES ($1, $2, $3, COALESCE((SELECT is_apex FROM domains WHERE name = $1 AND project = $4), TRUE))
         ON CONFLICT (name) DO UPDATE SET lineage = excluded.lineage, removed_at = excluded.removed_at,
             is_apex = excluded.is_apex",
    );
    tombstone.bind((name.as_str(), lineage, now.0, project.uid.as_str())).execute(&mut *connection).await?;
    // The owner of a zone can invent names in it without end, so each project has a maximum of tombstones.
    let delete_oldest = query(
        "DELETE FROM tombstones WHERE name IN
             (SELECT name FROM tombstones WHERE lineage = $1 ORDER BY removed_at DESC LIMIT 1000 OFFSET $2)",
    );
    delete_oldest.bind((lineage, TOMBSTONES_PER_PROJECT_MAX)).run(connection).await
}

/// Deletes former holders from before `before`, except of apexes: an apex that still points at us by its addresses does
/// not show who owns it, however long ago it was removed.
pub(crate) async fn forget_tombstones(connection: &mut Connection, before: UnixMillis) -> Result<()> {
    query("DELETE FROM tombstones WHERE removed_at < $1 AND NOT is_apex").bind(before.0).run(connection).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chassis::clock::ManualClock;
    use chassis::sql::query_scalar;

    use super::*;
    use crate::domain::Domain;
    use crate::store::Store;
    use crate::store::domains::save_domain;

    const DAY: i64 = 86_400 * 1_000;

    #[tokio::test]
    async fn a_local_name_is_contested_only_beside_names_of_another_project() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(UnixMillis(1_000)));
        let store = Store::open(&directory.path().join("db.sqlite").into(), clock).await.unwrap();
        let (one, two): (ProjectRef, ProjectRef) = ("one".parse().unwrap(), "two".parse().unwrap());
        let mut write = store.write().await.unwrap();
        for project in [&one, &two] {
            query(
                "INSERT INTO projects (id, name, salt, proof_key, plan, access, upstream, suspended, created_at, updated_at)
                 VALUES ($1, $1, $1, '', 'pro', 'key', 'orders', FALSE, 1, 1)",
            )
            .bind(project.name.as_str())
            .execute(write.connection())
            .await
            .unwrap();
        }
        for held in ["www.shop.localhost", "www.shop.customer.com"] {
            set_holder(write.connection(), &held.parse().unwrap(), &one).await.unwrap();
        }
        for (name, is_contested) in [
            ("www.shop.localhost", true),
            ("shop.localhost", true),
            ("a.b.www.shop.localhost", true),
            ("admin.shop.localhost", true),
            ("workshop.localhost", false),
            ("shop.localhost.customer.com", false),
            ("shop.customer.com", false),
            ("a.www.shop.customer.com", false),
        ] {
            let claims = find_claims(write.connection(), &name.parse().unwrap()).await.unwrap();
            assert_eq!(claims.contest(&two, "two"), is_contested, "{name}");
            assert!(!claims.contest(&one, "one"), "{name}");
        }
    }

    #[tokio::test]
    async fn formerly_attached_names_are_kept_up_to_a_maximum_and_apexes_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(UnixMillis(1_000)));
        let store = Store::open(&directory.path().join("db.sqlite").into(), clock).await.unwrap();
        let project: ProjectRef = "demo".parse().unwrap();
        sqlx::raw_sql(
            "INSERT INTO projects (id, name, salt, proof_key, plan, access, upstream, suspended, created_at, updated_at)
             VALUES ('demo', 'demo', 's', '', 'pro', 'key', 'orders', FALSE, 1, 1);",
        )
        .execute(store.writer().sqlite().unwrap())
        .await
        .unwrap();
        let (apex, below): (Hostname, Hostname) =
            ("customer.com".parse().unwrap(), "shop.customer.com".parse().unwrap());
        let mut write = store.write().await.unwrap();
        for (name, is_apex) in [(&apex, true), (&below, false)] {
            let mut domain = Domain::added(name.clone(), project.clone(), UnixMillis(1));
            domain.is_apex = Some(is_apex);
            save_domain(write.connection(), &domain).await.unwrap();
            set_holder(write.connection(), name, &project).await.unwrap();
            release(write.connection(), name, &project, "mine", UnixMillis(DAY)).await.unwrap();
        }
        forget_tombstones(write.connection(), UnixMillis(DAY)).await.unwrap();
        let lineage = async |write: &mut crate::store::Write, name: &Hostname| {
            find_claims(write.connection(), name).await.unwrap().lineage
        };
        assert_eq!(lineage(&mut write, &below).await.as_deref(), Some("mine"));
        forget_tombstones(write.connection(), UnixMillis(10_000 * DAY)).await.unwrap();
        assert_eq!(lineage(&mut write, &below).await, None);
        assert_eq!(lineage(&mut write, &apex).await.as_deref(), Some("mine"), "an apex is remembered without end");
        // The owner of a zone can create names in it without end.
        query(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
             INSERT INTO tombstones (name, lineage, removed_at, is_apex)
                 SELECT 'a' || i || '.customer.com', 'mine', 86400001 + i, TRUE FROM n",
        )
        .execute(write.connection())
        .await
        .unwrap();
        set_holder(write.connection(), &below, &project).await.unwrap();
        release(write.connection(), &below, &project, "mine", UnixMillis(20_000 * DAY)).await.unwrap();
        let count: i64 = query_scalar("SELECT COUNT(*) FROM tombstones").fetch_one(write.connection()).await.unwrap();
        assert_eq!(count, TOMBSTONES_PER_PROJECT_MAX);
        assert_eq!(lineage(&mut write, &below).await.as_deref(), Some("mine"), "the newest stay");
    }
}
