//! Stored API keys: digests, never keys.

use chassis::sql::{Connection, Found, On, query, query_as, query_scalar};
use contract::feed::{Entity, EntityName};
use contract::key::{ApiKey, Environment, KeyDigest, KeyId, Scopes};
use contract::time::{UnixMillis, UnixSeconds};
use contract::window::Window;

use super::rows::{self, Columns, ReadKey, Stored, Table};
use super::{Result, Store, Write, page_of, to_json, with_project};
use crate::project::ProjectRef;

/// A key's record.
#[derive(Clone, Debug)]
pub(crate) struct KeyRecord {
    pub(crate) id: KeyId,
    pub(crate) project: ProjectRef,
    pub(crate) digest: KeyDigest,
    pub(crate) label: String,
    pub(crate) scopes: Scopes,
    /// The last four characters, by which people tell keys apart.
    pub(crate) last4: String,
    pub(crate) environment: Environment,
    pub(crate) created_at: UnixMillis,
    pub(crate) expires_at: Option<UnixSeconds>,
    pub(crate) revoked_at: Option<UnixMillis>,
    /// The beginning of the minute in which it was used last, as far as it was reported.
    pub(crate) last_used_at: Option<UnixMillis>,
    /// The first unreadable column of its row, if any. Such a key is listed and can be revoked, and does not
    /// authenticate here.
    pub(crate) unreadable: Option<&'static str>,
}

impl KeyRecord {
    /// Whether it authenticates at all: it is not revoked, and its whole row can be read.
    pub(crate) fn is_valid(&self) -> bool {
        self.unreadable.is_none() && self.revoked_at.is_none()
    }

    /// Whether it authenticates at `now`.
    pub(crate) fn is_usable(&self, now: UnixSeconds) -> bool {
        self.is_valid() && self.expires_at.is_none_or(|end| now < end)
    }

    /// The key as published to the edge.
    pub(crate) fn published(&self) -> ApiKey {
        ApiKey {
            digest: self.digest,
            id: self.id.clone(),
            project: self.project.name.clone(),
            project_uid: self.project.uid.clone(),
            environment: self.environment,
            scopes: self.scopes.clone(),
            expires_at: self.expires_at,
        }
    }
}

impl Stored for KeyRecord {
    const KEY: ReadKey = |row| rows::key(Table::ApiKeys, row.text("id"), row.text("project"));

    fn read(row: &mut Columns<'_>) -> Option<Self> {
        Some(Self {
            id: row.word("id")?,
            project: row.project("project", "project_name")?,
            // Of no key: see `withdraw`.
            digest: row.word("digest").unwrap_or(KeyDigest([0; 32])),
            label: row.text("label"),
            scopes: row.json("scopes").unwrap_or_default(),
            last4: row.text("last4"),
            environment: row.word("environment").unwrap_or(Environment::Live),
            created_at: row.time("created_at"),
            expires_at: row.get::<Option<i64>>("expires_at").map(UnixSeconds),
            revoked_at: row.time_if_any("revoked_at"),
            last_used_at: row.time_if_any("last_used_at"),
            unreadable: row.unreadable(),
        })
    }
}

/// Withdraws a key, also one with an unreadable digest: the edge finds it by its id.
pub(crate) async fn withdraw(write: &mut Write, key: &KeyRecord) -> Result<()> {
    if key.unreadable.is_none() {
        return write.remove(EntityName::Key(key.digest)).await;
    }
    let bodies = query_as("SELECT body FROM entities WHERE kind = 'key' AND body LIKE '%' || $1 || '%'");
    let bodies: Vec<Found<(String,)>> = bodies.bind(key.id.as_str()).fetch_all(write.connection()).await?;
    for found in bodies {
        if let Ok(Entity::Key(published)) = serde_json::from_str(&found.row.0)
            && published.id == key.id
        {
            write.remove(EntityName::Key(published.digest)).await?;
        }
    }
    Ok(())
}

impl Store {
    /// The readable key with this digest, whosever it is, unless its project is removed.
    pub(crate) async fn key_by_digest(&self, digest: KeyDigest) -> Result<Option<KeyRecord>> {
        let row = query_as(with_project!(
            "api_keys WHERE digest = $1
             AND EXISTS (SELECT 1 FROM projects WHERE id = project AND removed_at IS NULL)"
        ));
        rows::readable(self.reader(), row.bind(digest.to_text())).await
    }

    /// Up to `limit` of a project's keys, oldest first, with those revoked lately, after the time and id in `after`.
    pub(crate) async fn keys(&self, project: &ProjectRef, after: &(i64, String), limit: i64) -> Result<Vec<KeyRecord>> {
        let page = query_as(page_of!("api_keys")).bind((project.uid.as_str(), after.0, &after.1, limit));
        rows::all(self.reader(), page).await
    }
}

/// The project's key with this id; `None` for a removed project.
pub(crate) async fn find_key(on: impl Into<On<'_>>, project: &ProjectRef, id: &KeyId) -> Result<Option<KeyRecord>> {
    let row = query_as(with_project!(
        "api_keys WHERE project = $1 AND id = $2
             AND EXISTS (SELECT 1 FROM projects WHERE id = $1 AND removed_at IS NULL)"
    ));
    rows::one(on, row.bind((project.uid.as_str(), id.as_str()))).await
}

/// All keys of a project.
pub(crate) async fn all_keys(connection: &mut Connection, project: &ProjectRef) -> Result<Vec<KeyRecord>> {
    let rows = query_as(with_project!("api_keys WHERE project = $1")).bind(project.uid.as_str());
    rows::all(connection, rows).await
}

/// How many keys of the project may still be used.
pub(crate) async fn count_usable(connection: &mut Connection, project: &ProjectRef, now: UnixSeconds) -> Result<u64> {
    let count = query_scalar(
        "SELECT COUNT(*) FROM api_keys
         WHERE project = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)",
    );
    let count: i64 = count.bind((project.uid.as_str(), now.0)).fetch_one(connection).await?;
    Ok(count.unsigned_abs())
}

/// The oldest keys of the project that are revoked or expired, beyond the `kept` newest of them.
pub(crate) async fn keys_beyond(
    connection: &mut Connection,
    project: &ProjectRef,
    kept: i64,
    now: UnixSeconds,
) -> Result<Vec<KeyRecord>> {
    /// Rows per statement. Each new key adds one row.
    const AT_ONCE: i64 = 100;
    let rows = query_as(with_project!(
        "api_keys WHERE project = $1 AND (revoked_at IS NOT NULL OR expires_at <= $2)
         ORDER BY created_at DESC, id LIMIT $3 OFFSET $4"
    ));
    rows::all(connection, rows.bind((project.uid.as_str(), now.0, AT_ONCE, kept))).await
}

/// Writes a key, new or changed.
pub(crate) async fn save_key(connection: &mut Connection, key: &KeyRecord) -> Result<()> {
    let values = [
        ("id", key.id.as_str().into()),
        ("project", key.project.uid.as_str().into()),
        ("digest", key.digest.to_text().into()),
        ("label", (&key.label).into()),
        ("scopes", to_json(&key.scopes).into()),
        ("last4", (&key.last4).into()),
        ("environment", key.environment.as_str().into()),
        ("created_at", key.created_at.0.into()),
        ("expires_at", key.expires_at.map(|at| at.0).into()),
        ("revoked_at", key.revoked_at.map(|at| at.0).into()),
    ];
    let once = ["project", "digest", "label", "scopes", "last4", "environment", "created_at"];
    rows::upsert(Table::ApiKeys, &["id"], &once, values).run(connection).await
}

/// Records the minute of a key's use. A later known minute stays, and a minute in the future, by this service's clock,
/// counts as the present one.
pub(crate) async fn record_use(connection: &mut Connection, key: &KeyId, minute: i64, now: UnixMillis) -> Result<()> {
    let minute = minute.min(Window::Minute.index(now));
    let update =
        query("UPDATE api_keys SET last_used_at = $2 WHERE id = $1 AND (last_used_at IS NULL OR last_used_at < $2)");
    update.bind((key.as_str(), Window::Minute.starts_at(minute).to_millis().0)).run(connection).await
}

/// Keys that were revoked or expired before `before` and can be deleted, at most `limit`.
pub(crate) async fn stale_keys(connection: &mut Connection, before: UnixMillis, limit: i64) -> Result<Vec<KeyRecord>> {
    let rows = query_as(with_project!("api_keys WHERE revoked_at < $1 OR expires_at < $2 ORDER BY id LIMIT $3"));
    rows::all(connection, rows.bind((before.0, before.to_seconds().0, limit))).await
}

/// Deletes a key's row.
pub(crate) async fn delete_key(connection: &mut Connection, key: &KeyRecord) -> Result<()> {
    connection.unreadable().forget(&rows::key(Table::ApiKeys, key.id.as_str(), key.project.uid.as_str()));
    query("DELETE FROM api_keys WHERE id = $1").bind(key.id.as_str()).run(connection).await
}
