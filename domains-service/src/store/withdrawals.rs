//! Withdrawals in progress: entities that a gateway may still serve.
//!
//! A row is written in the transaction of the withdrawal, and deleted when every process on record has applied its
//! revision.

use chassis::sql::{Connection, Found, query, query_as};
use contract::feed::Revision;
use contract::hostname::Hostname;
use contract::project::ProjectUid;
use contract::time::UnixMillis;
pub(crate) use domains_api::types::WithdrawalKind as Kind;

use super::log::of_revision;
use super::rows::{self, Columns, ReadKey, Stored, StoredRow, Table};
use super::{Result, Store, Write};
use crate::project::ProjectRef;

/// Maximum of withdrawals on record per project. Beyond it the oldest are deleted: a gateway that has applied a later
/// one has applied those too.
pub(crate) const WITHDRAWALS_OF_ONE_MAX: i64 = 1_000;

/// Rows per query.
const ROWS_MAX: i64 = 1_000;

/// A withdrawal that waits.
#[derive(Clone, Debug)]
pub(crate) struct Withdrawal {
    pub(crate) what: Kind,
    /// The hostname, the id of the key, or the name of the project.
    pub(crate) which: String,
    pub(crate) project_uid: String,
    pub(crate) project_name: String,
    pub(crate) revision: Revision,
    pub(crate) since: UnixMillis,
}

/// The withdrawals of one kind that wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingCount {
    pub(crate) what: Kind,
    pub(crate) count: i64,
    /// Since when the oldest waits.
    pub(crate) oldest: UnixMillis,
}

impl Stored for Withdrawal {
    const KEY: ReadKey = |row| rows::key(Table::Withdrawals, row.text("which"), row.text("project"));

    fn read(row: &mut Columns<'_>) -> Option<Self> {
        let revision: i64 = row.get("revision");
        // No process is known to have applied an unreadable revision.
        let revision = if row.unreadable() == Some("revision") { i64::MAX } else { revision };
        Some(Self {
            what: row.word("what")?,
            which: row.text("which"),
            project_uid: row.text("project"),
            project_name: row.text("project_name"),
            revision: Revision(revision.unsigned_abs()),
            since: row.time("since"),
        })
    }
}

impl Write {
    /// Records a withdrawal by the changes so far.
    pub(crate) async fn record_withdrawal(&mut self, what: Kind, which: &str, project: &ProjectRef) -> Result<()> {
        let (revision, now) = (self.revision(), self.now());
        query(
            "INSERT INTO withdrawals (what, which, project, project_name, revision, since)
             VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (project, what, which) DO UPDATE SET revision = excluded.revision, since = excluded.since",
        )
        .bind((what.as_str(), which, project.uid.as_str(), project.name.as_str(), of_revision(revision), now.0))
        .execute(self.connection())
        .await?;
        let delete_oldest = query(
            "DELETE FROM withdrawals WHERE project = $1 AND revision <=
             (SELECT revision FROM withdrawals WHERE project = $1 ORDER BY revision DESC LIMIT 1 OFFSET $2)",
        );
        delete_oldest.bind((project.uid.as_str(), WITHDRAWALS_OF_ONE_MAX)).run(self.connection()).await
    }

    /// Deletes a withdrawal, because the entity is served again.
    pub(crate) async fn forget_withdrawal(&mut self, what: Kind, which: &str, project: &ProjectRef) -> Result<()> {
        let delete = query("DELETE FROM withdrawals WHERE project = $1 AND what = $2 AND which = $3");
        delete.bind((project.uid.as_str(), what.as_str(), which)).run(self.connection()).await
    }
}

impl Store {
    /// The withdrawals that wait, by kind.
    pub(crate) async fn count_withdrawals(&self) -> Result<Vec<WaitingCount>> {
        let found = query_as("SELECT what, COUNT(*), MIN(since) FROM withdrawals GROUP BY what");
        let rows: Vec<Found<(String, i64, i64)>> = found.fetch_all(self.reader()).await?;
        let count = |found: Found<(String, i64, i64)>| {
            let (what, count, oldest) = found.row;
            Some(WaitingCount { what: what.parse().ok()?, count, oldest: UnixMillis(oldest) })
        };
        Ok(rows.into_iter().filter_map(count).collect())
    }

    /// Up to `limit` withdrawals that wait, the oldest first.
    pub(crate) async fn withdrawals(&self, limit: i64) -> Result<Vec<Withdrawal>> {
        let found = query_as("SELECT * FROM withdrawals ORDER BY revision, what, which LIMIT $1");
        rows::all(self.reader(), found.bind(limit)).await
    }

    /// The withdrawals of a project that wait, the oldest first.
    pub(crate) async fn withdrawals_of(&self, project: &ProjectUid) -> Result<Vec<Withdrawal>> {
        let found = query_as("SELECT * FROM withdrawals WHERE project = $1 ORDER BY revision, what, which LIMIT $2");
        rows::all(self.reader(), found.bind((project.as_str(), ROWS_MAX))).await
    }

    /// The removal of a project of this name that waits, the newest if there are several.
    pub(crate) async fn project_removal(&self, name: &str) -> Result<Option<Withdrawal>> {
        let found = query_as(
            "SELECT * FROM withdrawals WHERE what = 'project' AND project_name = $1 ORDER BY revision DESC LIMIT 1",
        );
        rows::one(self.reader(), found.bind(name)).await
    }

    /// The revision of the oldest withdrawal that waits.
    pub(crate) async fn oldest_withdrawal(&self) -> Result<Option<Revision>> {
        // Numbers sort before other values, so an unreadable row hides no other.
        let found = query_as(
            "SELECT revision FROM
                 (SELECT MIN(revision) AS revision FROM withdrawals UNION ALL SELECT MIN(removal) FROM domains
                     WHERE status = 'removing') AS oldest
             WHERE revision IS NOT NULL ORDER BY revision LIMIT 1",
        );
        let oldest: Option<Found<(i64,)>> = found.fetch_optional(self.reader()).await?;
        Ok(oldest.filter(|found| found.bad.is_none()).map(|found| Revision(found.row.0.unsigned_abs())))
    }
}

/// Deletes the withdrawals up to `revision`, which every process has applied.
pub(crate) async fn end(connection: &mut Connection, revision: Revision) -> Result<Vec<Withdrawal>> {
    let ended = query_as("DELETE FROM withdrawals WHERE revision <= $1 RETURNING *");
    let ended: Vec<StoredRow<Withdrawal>> = ended.bind(of_revision(revision)).fetch_all(&mut *connection).await?;
    // A row that cannot be read is over as well.
    for row in &ended {
        connection.unreadable().forget(&row.key);
    }
    Ok(ended.into_iter().filter_map(|row| row.value).collect())
}

/// Deletes the domains that are being removed, with a removal up to `revision`; returns their names.
pub(crate) async fn end_removals(connection: &mut Connection, revision: Revision) -> Result<Vec<Hostname>> {
    let ended = query_as("DELETE FROM domains WHERE removal <= $1 AND status = 'removing' RETURNING name");
    let ended: Vec<Found<(String,)>> = ended.bind(of_revision(revision)).fetch_all(connection).await?;
    Ok(ended.into_iter().filter_map(|found| found.row.0.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chassis::clock::ManualClock;
    use contract::feed::EntityName;

    use super::super::domains::save_domain;
    use super::*;
    use crate::domain::{Domain, Status};

    #[tokio::test]
    async fn the_end_of_a_removal_leaves_a_name_alone_that_was_added_again() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(UnixMillis(1_000)));
        let store = Store::open(&directory.path().join("db.sqlite").into(), clock).await.unwrap();
        let project: ProjectRef = "demo".parse().unwrap();
        let insert = "INSERT INTO projects (id, name, salt, proof_key, plan, access, upstream, suspended, created_at,
                 updated_at)
             VALUES ('demo', 'demo', 's', '', 'pro', 'key', 'orders', FALSE, 1, 1);";
        sqlx::raw_sql(insert).execute(store.writer().sqlite().unwrap()).await.unwrap();
        let name: Hostname = "shop.example".parse().unwrap();
        let mut write = store.write().await.unwrap();
        let added = Domain::added(name.clone(), project.clone(), UnixMillis(1));
        let removed = Domain { removal: Some(7), status: Status::Removing, ..added };
        save_domain(write.connection(), &removed).await.unwrap();
        // Two processes end the removal, and its owner adds the name again between them.
        let ended = end_removals(write.connection(), Revision(7)).await.unwrap();
        assert_eq!(ended, std::slice::from_ref(&name));
        save_domain(write.connection(), &Domain::added(name, project, UnixMillis(2))).await.unwrap();
        assert_eq!(end_removals(write.connection(), Revision(9)).await.unwrap(), []);
    }

    #[tokio::test]
    async fn withdrawals_of_a_project_are_bounded_and_the_newest_stay() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(UnixMillis(1_000)));
        let store = Store::open(&directory.path().join("db.sqlite").into(), clock).await.unwrap();
        let (noisy, quiet): (ProjectRef, ProjectRef) = ("noisy".parse().unwrap(), "quiet".parse().unwrap());
        let challenge = |index: i64| contract::certificate::Challenge {
            hostname: "a.example".parse().unwrap(),
            token: index.to_string(),
            key_authorization: "k".to_owned(),
        };
        let mut write = store.write().await.unwrap();
        write.record_withdrawal(Kind::Key, "key", &quiet).await.unwrap();
        for index in 0..WITHDRAWALS_OF_ONE_MAX + 10 {
            // Each has its own revision.
            write.put(contract::feed::Entity::Challenge(challenge(index))).await.unwrap();
            write.record_withdrawal(Kind::Key, &format!("key {index}"), &noisy).await.unwrap();
        }
        // Withdrawn again is withdrawn later.
        write.remove(EntityName::Challenge("0".to_owned())).await.unwrap();
        write.record_withdrawal(Kind::Key, "key 500", &noisy).await.unwrap();
        write.commit().await.unwrap();
        let kept = store.withdrawals_of(&noisy.uid).await.unwrap();
        assert_eq!(kept.len(), usize::try_from(WITHDRAWALS_OF_ONE_MAX).unwrap());
        assert_eq!((kept[0].which.as_str(), kept[999].which.as_str()), ("key 10", "key 500"));
        assert_eq!(store.withdrawals_of(&quiet.uid).await.unwrap().len(), 1);
        let counted = store.count_withdrawals().await.unwrap();
        assert_eq!((counted.len(), counted[0].what, counted[0].count), (1, Kind::Key, WITHDRAWALS_OF_ONE_MAX + 1));
    }
}
