//! Stored dashboard sessions: digests, never the value of a cookie.

use chassis::sql::{Found, query, query_as};
use contract::key::KeyId;
use contract::time::UnixMillis;

use super::rows::{self, Columns, ReadKey, Stored, Table};
use super::{Result, Store, with_project};
use crate::project::ProjectRef;

/// Without a request for this long, a session ends: an hour.
pub(crate) const IDLE_MILLIS_MAX: i64 = 3_600 * 1_000;

/// The longest a session lasts: twelve hours.
pub(crate) const ABSOLUTE_MILLIS_MAX: i64 = 12 * 3_600 * 1_000;

/// Sessions one key, or one operator, may have at once; beyond that, the oldest ends.
const SESSIONS_PER_KEY_MAX: i64 = 20;

/// Unused sign-in links per operator. Beyond it, the oldest become invalid.
const LINKS_PER_OPERATOR_MAX: i64 = 20;

/// A session's record.
#[derive(Clone, Debug)]
pub(crate) struct SessionRecord {
    pub(crate) digest: String,
    /// The project and key that opened it; `None` for an operator.
    pub(crate) holder: Option<(ProjectRef, KeyId)>,
    /// The operator who requested the link; `None` for a key.
    pub(crate) operator: Option<String>,
    pub(crate) client: String,
    pub(crate) created_at: UnixMillis,
    pub(crate) seen_at: UnixMillis,
}

/// Characters of a session's digest by which operators find its row.
const SHOWN_OF_DIGEST: usize = 8;

impl Stored for SessionRecord {
    const KEY: ReadKey = |row| {
        let digest = row.text("digest").chars().take(SHOWN_OF_DIGEST).collect::<String>();
        rows::key(Table::DashboardSessions, digest, row.get::<Option<String>>("project").unwrap_or_default())
    };

    /// A session with an unreadable column signs no user in.
    fn read(row: &mut Columns<'_>) -> Option<Self> {
        let columns = ["project", "project_name", "key_id", "operator"];
        let [project, name, key, operator] = columns.map(|column| row.get::<Option<String>>(column));
        let holder = match (project, name, key, &operator) {
            (Some(_), Some(_), Some(_), None) => row.project("project", "project_name").zip(row.word("key_id")),
            (None, _, None, Some(_)) => None,
            _ => {
                row.bad("project", "a session has a project and a key, or an operator");
                None
            }
        };
        let session = Self {
            digest: row.text("digest"),
            holder,
            operator,
            client: row.text("client"),
            created_at: row.time("created_at"),
            seen_at: row.time("seen_at"),
        };
        row.whole(session)
    }
}

impl Store {
    /// Opens a session, and ends the oldest of its key or operator beyond [`SESSIONS_PER_KEY_MAX`].
    pub(crate) async fn open_session(&self, session: &SessionRecord) -> Result<()> {
        let (project, key) = session.holder.as_ref().map(|(project, key)| (project.uid.as_str(), key.as_str())).unzip();
        let mut write = self.write().await?;
        query(
            "INSERT INTO dashboard_sessions (digest, project, key_id, client, created_at, seen_at, operator)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind((
            &session.digest,
            project,
            key,
            &session.client,
            session.created_at.0,
            session.seen_at.0,
            session.operator.as_deref(),
        ))
        .execute(write.connection())
        .await?;
        let older = match key {
            Some(key) => query(
                "DELETE FROM dashboard_sessions WHERE key_id = $1 AND digest NOT IN
                     (SELECT digest FROM dashboard_sessions WHERE key_id = $1 ORDER BY created_at DESC, digest LIMIT $2)",
            )
            .bind(key),
            None => query(
                "DELETE FROM dashboard_sessions WHERE operator = $1 AND digest NOT IN
                     (SELECT digest FROM dashboard_sessions WHERE operator = $1 ORDER BY created_at DESC, digest LIMIT $2)",
            )
            .bind(session.operator.as_deref()),
        };
        older.bind(SESSIONS_PER_KEY_MAX).execute(write.connection()).await?;
        write.commit().await.map(drop)
    }

    /// The session with this digest.
    pub(crate) async fn find_session(&self, digest: &str) -> Result<Option<SessionRecord>> {
        let row = query_as(with_project!(
            "dashboard_sessions
             WHERE digest = $1"
        ));
        rows::readable(self.reader(), row.bind(digest)).await
    }

    /// Records the use of a session.
    pub(crate) async fn see_session(&self, digest: &str, now: UnixMillis) -> Result<()> {
        let update = query("UPDATE dashboard_sessions SET seen_at = $2 WHERE digest = $1");
        update.bind((digest, now.0)).run(self.writer()).await
    }

    /// Ends a session, or every session of its key; of the operators', where it has none.
    pub(crate) async fn end_sessions(&self, digest: &str, key: Option<&KeyId>, everywhere: bool) -> Result<()> {
        let statement = match (key, everywhere) {
            (_, false) => query("DELETE FROM dashboard_sessions WHERE digest = $1").bind(digest),
            (Some(key), true) => query("DELETE FROM dashboard_sessions WHERE key_id = $1").bind(key.as_str()),
            (None, true) => query("DELETE FROM dashboard_sessions WHERE key_id IS NULL"),
        };
        statement.run(self.writer()).await
    }

    /// Deletes sessions that were opened or last used before these times, and expired links.
    pub(crate) async fn forget_sessions(
        &self,
        opened_before: UnixMillis,
        seen_before: UnixMillis,
        now: UnixMillis,
    ) -> Result<()> {
        let mut write = self.write().await?;
        let delete = query(
            "DELETE FROM dashboard_sessions WHERE CAST(created_at AS BIGINT) < $1 OR CAST(seen_at AS BIGINT) < $2",
        );
        delete.bind((opened_before.0, seen_before.0)).execute(write.connection()).await?;
        let delete = query("DELETE FROM dashboard_links WHERE CAST(expires_at AS BIGINT) < $1");
        delete.bind(now.0).execute(write.connection()).await?;
        write.commit().await.map(drop)
    }

    /// Stores a link that signs in the operator who requested it, until `expires_at`.
    pub(crate) async fn save_link(&self, digest: &str, operator: &str, expires_at: UnixMillis) -> Result<()> {
        let mut write = self.write().await?;
        let insert = query("INSERT INTO dashboard_links (digest, expires_at, operator) VALUES ($1, $2, $3)");
        insert.bind((digest, expires_at.0, operator)).execute(write.connection()).await?;
        let delete_oldest = query(
            "DELETE FROM dashboard_links WHERE operator = $1 AND digest NOT IN
                 (SELECT digest FROM dashboard_links WHERE operator = $1 ORDER BY expires_at DESC, digest LIMIT $2)",
        );
        delete_oldest.bind((operator, LINKS_PER_OPERATOR_MAX)).execute(write.connection()).await?;
        write.commit().await.map(drop)
    }

    /// Uses up a link; returns the operator who requested it, or `None` if it is invalid. Of two simultaneous attempts,
    /// one succeeds.
    pub(crate) async fn spend_link(&self, digest: &str, now: UnixMillis) -> Result<Option<String>> {
        let mut write = self.write().await?;
        // An expiry that is not a number is past.
        let spent = query_as(
            "DELETE FROM dashboard_links WHERE digest = $1 AND CAST(expires_at AS BIGINT) >= $2 RETURNING operator",
        );
        let spent: Option<Found<(String,)>> = spent.bind((digest, now.0)).fetch_optional(write.connection()).await?;
        write.commit().await?;
        Ok(spent.filter(|spent| spent.bad.is_none()).map(|spent| spent.row.0))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chassis::clock::ManualClock;
    use chassis::sql::query_scalar;

    use super::*;

    #[tokio::test]
    async fn a_key_has_a_bounded_number_of_sessions() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(UnixMillis(1_000)));
        let store = Store::open(&directory.path().join("db.sqlite").into(), clock).await.unwrap();
        sqlx::raw_sql(
            "INSERT INTO projects (id, name, salt, proof_key, plan, access, upstream, suspended, created_at, updated_at)
             VALUES ('demo', 'demo', 's', '', 'pro', 'key', 'orders', FALSE, 1, 1);",
        )
        .execute(store.writer().sqlite().unwrap())
        .await
        .unwrap();
        let holder = |key: u8| Some(("demo".parse().unwrap(), KeyId::from_random([key; 10])));
        for number in 0..SESSIONS_PER_KEY_MAX + 5 {
            let session = SessionRecord {
                digest: format!("one-{number}"),
                holder: holder(1),
                operator: None,
                client: "192.0.2.1".to_owned(),
                created_at: UnixMillis(number),
                seen_at: UnixMillis(number),
            };
            store.open_session(&session).await.unwrap();
            store
                .open_session(&SessionRecord { digest: format!("two-{number}"), holder: holder(2), ..session })
                .await
                .unwrap();
        }
        let count = query_scalar("SELECT COUNT(*) FROM dashboard_sessions");
        let count: i64 = count.fetch_one(store.reader()).await.unwrap();
        assert_eq!(count, 2 * SESSIONS_PER_KEY_MAX);
        assert!(store.find_session("one-0").await.unwrap().is_none(), "the oldest end");
        assert!(store.find_session("one-24").await.unwrap().is_some());
    }

    #[tokio::test]
    async fn an_operator_has_a_bounded_number_of_sessions_and_links() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(UnixMillis(1_000)));
        let store = Store::open(&directory.path().join("db.sqlite").into(), clock).await.unwrap();
        for number in 0..SESSIONS_PER_KEY_MAX + 5 {
            for operator in ["command-line", "ada", "bob"] {
                let digest = format!("{operator}-{number}");
                let session = SessionRecord {
                    digest: digest.clone(),
                    holder: None,
                    operator: Some(operator.to_owned()),
                    client: "192.0.2.1".to_owned(),
                    created_at: UnixMillis(number),
                    seen_at: UnixMillis(number),
                };
                store.open_session(&session).await.unwrap();
                store.save_link(&digest, operator, UnixMillis(2_000 + number)).await.unwrap();
            }
        }
        let count = async |table: &str| {
            let count = sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
            sqlx::query_scalar::<_, i64>(count).fetch_one(store.reader().sqlite().unwrap()).await.unwrap()
        };
        assert_eq!(count("dashboard_sessions").await, 3 * SESSIONS_PER_KEY_MAX);
        assert_eq!(count("dashboard_links").await, 3 * LINKS_PER_OPERATOR_MAX);
        assert!(store.find_session("ada-0").await.unwrap().is_none(), "the oldest end");
        assert_eq!(store.spend_link("ada-0", UnixMillis(1_000)).await.unwrap(), None);
        assert_eq!(store.spend_link("ada-24", UnixMillis(1_000)).await.unwrap(), Some("ada".to_owned()));
        // And time ends the rest.
        store.forget_sessions(UnixMillis(100), UnixMillis(100), UnixMillis(9_000)).await.unwrap();
        assert_eq!((count("dashboard_sessions").await, count("dashboard_links").await), (0, 0));
    }
}
