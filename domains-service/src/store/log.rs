//! Reading the change log and the snapshot, and keeping the log bounded.
//!
//! A row of `changes` has the mark of its revision. The effect of an old row is emptied first and its mark is kept longer,
//! so that a follower far behind still proves that it followed this history. The newest revision always has a row.

use chassis::sql::{Connection, Pool, RowPlace, query, query_as, query_scalar};
use contract::feed::{Change, Entity, Mark, Position, Revision};
use contract::time::UnixMillis;

use super::rows::{self, Columns, Stored, Table};
use super::{Store, StoreError};

/// Rows of the log read at once.
pub(crate) const CHANGES_PER_READ: i64 = 512;

/// Marks kept beyond the changes themselves: about 30 MB. A follower that is further behind cannot prove that it followed
/// this history, and an operator decides.
const MARKS_KEPT: i64 = 1_000_000;

/// The setting of [`REPLACE_EARLIER`]: revisions below it are of databases that this one replaced on purpose.
const REPLACED_BELOW: &str = "replaced_below";

/// What a restore tells the database that it puts back, once its counter is above every revision ever given out: it replaces
/// the databases of before. A follower of one of them is sent a snapshot, whatever its mark.
pub const REPLACE_EARLIER: &str = "INSERT INTO settings (name, value) \
     SELECT 'replaced_below', CAST(current AS TEXT) FROM revision_counter WHERE id = 1 \
     ON CONFLICT (name) DO UPDATE SET value = excluded.value";

/// What a follower is to be sent.
#[derive(Debug)]
pub(crate) enum Next {
    /// These changes, in order; none when it has everything.
    Changes(Vec<Change>),
    /// A snapshot: the follower begins, or the log no longer holds what it lacks.
    Snapshot,
    /// Nothing: this database never was where the follower is. Its newest revision is this.
    OtherHistory(Revision),
}

/// A row of `changes`: revision, effect, time, mark.
type Row = (i64, String, i64, i64);

/// What the log says of the revision that a follower names.
struct Found {
    /// The mark of this revision, while it is kept.
    mark: Option<Mark>,
    /// The log holds every change above this revision.
    oldest: Revision,
    /// Revisions below are of databases that an operator replaced by this one.
    replaced_below: Revision,
}

/// How a follower goes on.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    Changes,
    Snapshot,
    Refuse,
}

/// Compares where a follower is with the log. A revision without its mark proves nothing.
fn way(revision: Revision, mark: Option<Mark>, found: &Found) -> Way {
    if revision == Revision::default() || revision < found.replaced_below {
        Way::Snapshot
    } else if mark.is_none() || mark != found.mark {
        Way::Refuse
    } else if revision < found.oldest {
        Way::Snapshot
    } else {
        Way::Changes
    }
}

/// A mark for a new revision, as it is stored.
pub(super) fn random_mark() -> Result<i64, StoreError> {
    let bytes = chassis::random::bytes().map_err(|error| sqlx::Error::Io(std::io::Error::other(error)))?;
    Ok(i64::from_le_bytes(bytes))
}

/// Gives the newest revision a row with a mark where it has none: in a new database, and after a restore.
pub(super) async fn mark_the_newest(writer: &Pool) -> Result<(), StoreError> {
    query(
        "INSERT INTO changes (revision, effect, at_ms, mark) SELECT current, '', 0, $1 FROM revision_counter WHERE id = 1
         ON CONFLICT DO NOTHING",
    )
    .bind(random_mark()?)
    .execute(writer)
    .await?;
    Ok(())
}

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
    /// The newest revision.
    pub(crate) async fn newest_revision(&self) -> Result<Revision, StoreError> {
        let current: i64 =
            query_scalar("SELECT current FROM revision_counter WHERE id = 1").fetch_one(self.reader()).await?;
        Ok(Revision(current.unsigned_abs()))
    }

    /// What follows `revision`, at most `limit` changes. The follower's `mark` must be the one that this database drew for
    /// the revision.
    pub(crate) async fn changes_after(
        &self,
        revision: Revision,
        mark: Option<Mark>,
        limit: i64,
    ) -> Result<Next, StoreError> {
        let mut reading = self.reading().await?;
        let (current, oldest, replaced_below): (i64, i64, Option<String>) = query_as(
            "SELECT current, oldest, (SELECT value FROM settings WHERE name = $1) FROM revision_counter WHERE id = 1",
        )
        .bind(REPLACED_BELOW)
        .fetch_one(&mut reading)
        .await?;
        let after = i64::try_from(revision.0).unwrap_or(i64::MAX);
        // The row of the follower's own revision first.
        let mut rows: Vec<Row> = query_as(
            "SELECT revision, effect, at_ms, mark FROM changes WHERE revision >= $1 ORDER BY revision LIMIT $2",
        )
        .bind(after)
        .bind(limit.saturating_add(1))
        .fetch_all(&mut reading)
        .await?;
        let own = rows.first().filter(|row| row.0 == after).map(|row| as_mark(row.3));
        let replaced_below = replaced_below.and_then(|number| number.parse().ok()).unwrap_or_default();
        let found =
            Found { mark: own, oldest: Revision(oldest.unsigned_abs()), replaced_below: Revision(replaced_below) };
        match way(revision, mark, &found) {
            Way::Snapshot => Ok(Next::Snapshot),
            Way::Refuse => Ok(Next::OtherHistory(Revision(current.unsigned_abs()))),
            // What an unreadable row changed is in the snapshot, and every later change follows that.
            Way::Changes => {
                let changes: Option<Vec<_>> = rows.drain(1..).map(|row| read_change(&reading, row)).collect();
                Ok(changes.map_or(Next::Snapshot, Next::Changes))
            }
        }
    }

    /// Begins a consistent read of everything the edge knows: the transaction, where it is, and how many entities, without
    /// those that could not be read when they were read last.
    pub(crate) async fn snapshot(&self) -> Result<(Connection, Position, u64), StoreError> {
        let mut reading = self.reading().await?;
        let (current, mark): (i64, i64) = query_as(
            "SELECT revision, mark FROM changes WHERE revision = (SELECT current FROM revision_counter WHERE id = 1)",
        )
        .fetch_one(&mut reading)
        .await?;
        let entities: i64 = query_scalar("SELECT COUNT(*) FROM entities").fetch_one(&mut reading).await?;
        let unreadable = u64::try_from(self.reader().unreadable().count(Table::Entities.as_str())).unwrap_or(u64::MAX);
        let entities = entities.unsigned_abs().saturating_sub(unreadable);
        let position = Position { revision: Revision(current.unsigned_abs()), mark: as_mark(mark) };
        Ok((reading, position, entities))
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

    /// Forgets the oldest changes beyond `keep` rows, and the marks beyond [`MARKS_KEPT`]. A follower that still needs the
    /// changes gets a snapshot. Answers how many changes were forgotten.
    pub(crate) async fn compact_log(&self, keep: u64) -> Result<u64, StoreError> {
        self.compact(i64::try_from(keep).unwrap_or(i64::MAX), MARKS_KEPT).await
    }

    pub(super) async fn compact(&self, keep: i64, keep_marks: i64) -> Result<u64, StoreError> {
        let mut write = self.write().await?;
        let (current, oldest): (i64, i64) =
            query_as("SELECT current, oldest FROM revision_counter WHERE id = 1").fetch_one(write.connection()).await?;
        let floor = current.saturating_sub(keep);
        if floor <= oldest {
            return Ok(0);
        }
        let forgotten = query("UPDATE changes SET effect = '' WHERE revision > $1 AND revision <= $2")
            .bind(oldest)
            .bind(floor)
            .execute(write.connection())
            .await?
            .rows_affected();
        query("DELETE FROM changes WHERE revision <= $1")
            .bind(floor.saturating_sub(keep_marks))
            .execute(write.connection())
            .await?;
        rows::forget_changes(self.reader(), floor);
        query("UPDATE revision_counter SET oldest = $1 WHERE id = 1").bind(floor).execute(write.connection()).await?;
        write.commit().await?;
        Ok(forgotten)
    }
}

fn as_mark(stored: i64) -> Mark {
    Mark(u64::from_le_bytes(stored.to_le_bytes()))
}

/// A change as it is told; `None` for a row that cannot be read, which is noted.
fn read_change(reading: &Connection, (revision, effect, at, mark): Row) -> Option<Change> {
    match serde_json::from_str(&effect) {
        Ok(effect) => Some(Change {
            revision: Revision(revision.unsigned_abs()),
            mark: as_mark(mark),
            at: UnixMillis(at),
            effect,
        }),
        Err(error) => {
            rows::note(reading, &rows::place(Table::Changes, revision.to_string(), ""), "effect", &error);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Mark = Mark(7);

    fn way_of(revision: u64, mark: Option<Mark>, kept: Option<Mark>) -> Way {
        let found = Found { mark: kept, oldest: Revision(100), replaced_below: Revision(50) };
        way(Revision(revision), mark, &found)
    }

    #[test]
    fn a_follower_of_this_history_goes_on() {
        assert_eq!(way_of(100, Some(OURS), Some(OURS)), Way::Changes);
        assert_eq!(way_of(150, Some(OURS), Some(OURS)), Way::Changes);
        assert_eq!(way_of(99, Some(OURS), Some(OURS)), Way::Snapshot, "the changes are forgotten, the mark is not");
    }

    #[test]
    fn a_follower_of_another_history_is_refused_at_any_number() {
        assert_eq!(way_of(150, Some(Mark(8)), Some(OURS)), Way::Refuse, "the same number with another mark");
        assert_eq!(way_of(99, Some(Mark(8)), Some(OURS)), Way::Refuse, "in the part of the log that is forgotten");
        assert_eq!(way_of(151, Some(OURS), None), Way::Refuse, "a number that was never given out, or is not kept");
        assert_eq!(way_of(150, None, Some(OURS)), Way::Refuse, "no mark at all");
        assert_eq!(way_of(151, None, None), Way::Refuse);
    }

    #[test]
    fn a_follower_that_begins_and_one_of_a_replaced_database_are_sent_everything() {
        assert_eq!(way_of(0, None, None), Way::Snapshot);
        assert_eq!(way_of(49, Some(Mark(8)), None), Way::Snapshot);
        assert_eq!(way_of(50, Some(Mark(8)), None), Way::Refuse);
    }
}
