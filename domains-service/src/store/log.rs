//! Reading the change log and the snapshot, and keeping the log bounded.

use chassis::sql::{Connection, RowPlace, query, query_as, query_scalar};
use contract::feed::{Change, Entity, Revision};
use contract::time::UnixMillis;

use super::rows::{self, Columns, Stored, Table};
use super::{Store, StoreError};

/// Rows of the log read at once.
pub(crate) const CHANGES_PER_READ: i64 = 512;

/// What a follower is to be sent.
pub(crate) enum Next {
    /// These changes, in order; none when it has everything.
    Changes(Vec<Change>),
    /// A snapshot: the log no longer holds what it lacks, or it follows another history.
    Snapshot,
}

/// The setting that holds the id of the database.
const HISTORY: &str = "history";

/// An entity as it rests.
pub(crate) struct StoredEntity {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) body: String,
}

impl Stored for StoredEntity {
    type Value = Entity;

    fn place(&self) -> RowPlace {
        rows::place(Table::Entities, &self.name, &self.kind)
    }

    fn read(self, columns: &mut Columns) -> Option<Entity> {
        columns.json("body", &self.body)
    }
}

/// Whether an entity can be read; one that cannot is noted.
pub(crate) fn is_readable(reading: &Connection, kind: &str, name: &str, body: &str) -> bool {
    let place = rows::place(Table::Entities, name, kind);
    let read = serde_json::from_str::<Entity>(body);
    match &read {
        Ok(_) => rows::forget(reading, &place),
        Err(error) => rows::note(reading, &place, "body", error),
    }
    read.is_ok()
}

impl Store {
    /// The id of this database, made when it is first asked for. A backup takes it along, so gateways know a restored
    /// database again.
    pub(crate) async fn history(&self) -> Result<String, StoreError> {
        if let Some(id) = self.setting(HISTORY).await? {
            return Ok(id);
        }
        let bytes =
            chassis::random::bytes().map_err(|_| sqlx::Error::Io(std::io::Error::other("no random numbers")))?;
        let id = format!("{:032x}", u128::from_le_bytes(bytes));
        self.remember(HISTORY, &id).await
    }

    /// The newest revision.
    pub(crate) async fn newest_revision(&self) -> Result<Revision, StoreError> {
        let current: i64 =
            query_scalar("SELECT current FROM revision_counter WHERE id = 1").fetch_one(self.reader()).await?;
        Ok(Revision(current.unsigned_abs()))
    }

    /// What follows `after`.
    pub(crate) async fn changes_after(&self, after: Revision) -> Result<Next, StoreError> {
        let Ok(after) = i64::try_from(after.0) else { return Ok(Next::Snapshot) };
        let mut reading = self.reading().await?;
        let (current, oldest): (i64, i64) =
            query_as("SELECT current, oldest FROM revision_counter WHERE id = 1").fetch_one(&mut reading).await?;
        if after < oldest || after > current || after == 0 {
            return Ok(Next::Snapshot);
        }
        let rows: Vec<(i64, String, i64)> =
            query_as("SELECT revision, effect, at_ms FROM changes WHERE revision > $1 ORDER BY revision LIMIT $2")
                .bind(after)
                .bind(CHANGES_PER_READ)
                .fetch_all(&mut reading)
                .await?;
        let mut changes = Vec::with_capacity(rows.len());
        for (revision, effect, at) in rows {
            match serde_json::from_str(&effect) {
                Ok(effect) => {
                    changes.push(Change { revision: Revision(revision.unsigned_abs()), at: UnixMillis(at), effect });
                }
                // What it changed is in the snapshot, and every later change follows that.
                Err(error) => {
                    rows::note(&reading, &rows::place(Table::Changes, revision.to_string(), ""), "effect", &error);
                    return Ok(Next::Snapshot);
                }
            }
        }
        Ok(Next::Changes(changes))
    }

    /// Begins a consistent read of everything the edge knows: the transaction, its revision, and how many entities,
    /// without those that could not be read when they were read last.
    pub(crate) async fn snapshot(&self) -> Result<(Connection, Revision, u64), StoreError> {
        let mut reading = self.reading().await?;
        let current: i64 =
            query_scalar("SELECT current FROM revision_counter WHERE id = 1").fetch_one(&mut reading).await?;
        let entities: i64 = query_scalar("SELECT COUNT(*) FROM entities").fetch_one(&mut reading).await?;
        let unreadable = u64::try_from(self.reader().unreadable().count(Table::Entities.as_str())).unwrap_or(u64::MAX);
        let entities = entities.unsigned_abs().saturating_sub(unreadable);
        Ok((reading, Revision(current.unsigned_abs()), entities))
    }

    /// Entities after the given one, by kind and name, as they rest, at most `limit`; within the reading of a snapshot.
    pub(crate) async fn entities_after(
        reading: &mut Connection,
        (kind, name): (&str, &str),
        limit: i64,
    ) -> Result<Vec<(String, String, String)>, StoreError> {
        Ok(query_as("SELECT kind, name, body FROM entities WHERE (kind, name) > ($1, $2) ORDER BY kind, name LIMIT $3")
            .bind(kind)
            .bind(name)
            .bind(limit)
            .fetch_all(reading)
            .await?)
    }

    /// Forgets the oldest changes beyond `keep` rows. A follower that still needs them gets a snapshot.
    pub(crate) async fn compact_log(&self, keep: u64) -> Result<u64, StoreError> {
        let mut write = self.write().await?;
        let (current, oldest): (i64, i64) =
            query_as("SELECT current, oldest FROM revision_counter WHERE id = 1").fetch_one(write.connection()).await?;
        let floor = current.saturating_sub(i64::try_from(keep).unwrap_or(i64::MAX));
        if floor <= oldest {
            return Ok(0);
        }
        let forgotten = query("DELETE FROM changes WHERE revision <= $1")
            .bind(floor)
            .execute(write.connection())
            .await?
            .rows_affected();
        rows::forget_changes(self.reader(), floor);
        query("UPDATE revision_counter SET oldest = $1 WHERE id = 1").bind(floor).execute(write.connection()).await?;
        write.commit().await?;
        Ok(forgotten)
    }
}
