//! Reads the change log and the snapshot, and bounds the log.
//!
//! A row of `changes` has the mark of its revision. The effect of an old row is deleted first and its mark stays
//! longer, so that a follower far behind can still prove that it followed this history. The newest revision always has
//! a row. A missing row between two others was lost: a follower that continues from there gets a snapshot. A follower
//! with another mark than the row's is refused, even if damage changed the row's mark, because the two cases cannot be
//! told apart.

mod check;
pub(crate) mod claim;
mod compaction;
pub(super) mod counters;

use chassis::seal::SealingKey;
use chassis::sql::{Connection, Found, RowKey, query, query_as, query_scalar};
use contract::feed::{Change, Entity, Mark, Position, Revision};

pub(crate) use self::check::Check;
pub(super) use self::compaction::erase_earlier;
use self::counters::Counters;
use super::rows::{self, Columns, ReadKey, Stored, Table};
use super::{Result, Store};

/// Rows of the log read at once.
pub(crate) const CHANGES_PER_READ: i64 = 512;

/// The setting with the first revision of this database's own history. A follower below it followed a database that
/// this one replaced on purpose, and gets a snapshot, whatever its mark.
pub(super) const REPLACED_BELOW: &str = "replaced_below";

/// The next data for a follower.
#[derive(Debug)]
pub(crate) enum Next {
    /// These changes, in order; empty if the follower has all.
    Changes(Vec<Change>),
    /// A snapshot: the follower is new, or the log no longer holds the changes that it lacks.
    Snapshot,
    /// None: the follower's position is not in this database's history. The database's newest revision is this.
    OtherHistory(Revision),
}

chassis::record! {
    struct Row {
        revision: i64,
        mark: i64,
        effect: String,
        at_ms: i64,
    }
}

/// The log's facts about a follower's revision.
struct Known {
    /// The mark of this revision, while it is kept.
    mark: Option<Mark>,
    /// The revision belongs to this history, but its row is damaged or lost.
    damaged: bool,
    /// The log holds every change above this revision.
    oldest: Revision,
    /// Revisions below are of databases that an operator replaced by this one.
    replaced_below: Revision,
}

/// How a follower continues.
#[derive(Debug, PartialEq, Eq)]
enum Way {
    Changes,
    Snapshot,
    Refuse,
}

/// Compares a follower's position with the log. A revision without its mark proves nothing.
fn way(revision: Revision, mark: Option<Mark>, known: &Known) -> Way {
    if revision == Revision::default() || revision < known.replaced_below || known.damaged {
        Way::Snapshot
    } else if mark.is_none() || mark != known.mark {
        Way::Refuse
    } else if revision < known.oldest {
        Way::Snapshot
    } else {
        Way::Changes
    }
}

/// A random mark for a new revision, as stored.
pub(super) fn random_mark() -> Result<i64> {
    let bytes = chassis::random::bytes().map_err(|error| sqlx::Error::Io(std::io::Error::other(error)))?;
    Ok(i64::from_le_bytes(bytes))
}

chassis::record! {
    /// An entity as it rests.
    pub(crate) struct StoredEntity {
        pub(crate) kind: String,
        pub(crate) name: String,
        pub(crate) body: String,
    }
}

impl Stored for Entity {
    const KEY: ReadKey = |row| rows::key(Table::Entities, row.text("name"), row.text("kind"));

    fn read(row: &mut Columns<'_>) -> Option<Self> {
        let entity = row.record::<StoredEntity>()?.entity().map_err(|reason| row.bad("body", reason)).ok();
        entity.and_then(|entity| row.whole(entity))
    }
}

/// Called after all entities were read: only `keys` are unreadable.
pub(crate) fn are_unreadable(reading: &Connection, keys: &[RowKey]) {
    reading.unreadable().forget_where(|key| key.table == Table::Entities.as_str() && !keys.contains(key));
}

/// The position of a read of entities. Entities with unreadable names are counted after the last readable name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Read {
    kind: String,
    name: String,
    nameless: i64,
}

impl Read {
    /// One entity more was read.
    pub(crate) fn pass(&mut self, found: Found<StoredEntity>) {
        if found.bad.is_none_or(|bad| bad.column == "body") {
            *self = Self { kind: found.row.kind, name: found.row.name, nameless: 0 };
        } else {
            self.nameless = self.nameless.saturating_add(1);
        }
    }
}

impl Store {
    /// The newest revision.
    pub(crate) async fn newest_revision(&self) -> Result<Revision> {
        let highest = self.commits.highest();
        let newest = Counters::read(&mut self.reader().acquire().await?).await?.revision();
        self.commits.read(newest, highest);
        Ok(newest)
    }

    /// The changes after `revision`, at most `limit`. The follower's `mark` must be this database's mark of the
    /// revision.
    pub(crate) async fn changes_after(
        &self,
        sealing: &SealingKey,
        (revision, mark): (Revision, Option<Mark>),
        limit: i64,
    ) -> Result<Next> {
        let mut reading = self.reading().await?;
        let counters = Counters::read(&mut reading).await?;
        let after = of_revision(revision);
        // The row of the follower's own revision first.
        let rows = query_as(
            "SELECT revision, mark, effect, at_ms FROM changes WHERE revision >= $1 ORDER BY revision LIMIT $2",
        );
        let mut rows: Vec<Found<Row>> = rows.bind((after, limit.saturating_add(1))).fetch_all(&mut reading).await?;
        // SQLite sorts a revision that is not a number after all others; the gap shows which one it was. A number that
        // was never given out is damage too.
        rows.retain(|found| has_revision(&reading, found) && found.row.revision <= counters.newest);
        let own = rows.first().filter(|found| found.row.revision == after);
        let damaged = match own {
            Some(found) => found.bad.as_ref().is_some_and(|bad| bad.column == "mark"),
            None => is_lost(&mut reading, after, &counters).await?,
        };
        let own = own.map(|found| as_mark(found.row.mark));
        let oldest = Revision(counters.oldest.unsigned_abs());
        let known = Known { mark: own, damaged, oldest, replaced_below: counters.replaced_below() };
        match way(revision, mark, &known) {
            Way::Snapshot => Ok(Next::Snapshot),
            Way::Refuse if is_mark_of_damaged(&mut reading, mark, &counters).await? => Ok(Next::Snapshot),
            Way::Refuse => Ok(Next::OtherHistory(counters.revision())),
            // The snapshot contains the change of an unreadable row, and every later change follows it.
            Way::Changes => {
                let (mut check, mut changes) = (Check::new(sealing), Vec::new());
                for row in rows.drain(1..) {
                    let Some(change) = check.change(&mut reading, row).await? else { return Ok(Next::Snapshot) };
                    changes.push(change);
                }
                let is_whole = follow(&changes, revision, limit, counters.revision());
                Ok(if is_whole { Next::Changes(changes) } else { Next::Snapshot })
            }
        }
    }

    /// Begins a consistent read of everything the edge knows: the transaction, where it is, and how many entities,
    /// without those that could not be read when they were read last.
    pub(crate) async fn snapshot(&self) -> Result<(Connection, Position, u64)> {
        let mut reading = self.reading().await?;
        let mut newest = newest_row(&mut reading).await?;
        if newest.is_none() {
            drop(reading);
            self.repair_newest().await?;
            reading = self.reading().await?;
            newest = newest_row(&mut reading).await?;
        }
        let position = newest.ok_or(sqlx::Error::RowNotFound)?;
        let entities: i64 = query_scalar("SELECT COUNT(*) FROM entities").fetch_one(&mut reading).await?;
        let unreadable = u64::try_from(self.reader().unreadable().count(Table::Entities.as_str())).unwrap_or(u64::MAX);
        Ok((reading, position, entities.unsigned_abs().saturating_sub(unreadable)))
    }

    /// Gives a new database's revision a row with a mark. No snapshot could be told from those of another history
    /// without.
    ///
    /// Where the row of the newest revision is lost or damaged, followers that have come to it cannot be told from
    /// those of another history by any mark drawn now. They are sent a snapshot, so another revision is given out for
    /// it.
    pub(super) async fn repair_newest(&self) -> Result<()> {
        let mut write = self.write().await?;
        if newest_row(write.connection()).await?.is_some() {
            return Ok(());
        }
        let rows =
            query_scalar("SELECT COUNT(*) FROM (SELECT 1 FROM changes UNION ALL SELECT 1 FROM entities) AS all_rows");
        let rows: i64 = rows.fetch_one(write.connection()).await?;
        if rows == 0 {
            write.log("").await?;
        } else {
            tracing::error!(
                revision = write.revision().0,
                "the newest row of the change log is lost or damaged; sending gateways a snapshot. Another program wrote to \
                 the database, or its disk is damaged: check both"
            );
            // Its mark is unreadable; without the row, the revision counts as lost.
            let delete = query("DELETE FROM changes WHERE revision = $1");
            delete.bind(of_revision(write.revision())).execute(write.connection()).await?;
            write.resend().await?;
        }
        write.commit().await.map(drop)
    }

    /// Entities after those already read, by kind and name, as stored, at most `limit`; within the transaction of a
    /// snapshot.
    pub(crate) async fn entities_after(
        reading: &mut Connection,
        read: &Read,
        limit: i64,
    ) -> Result<Vec<Found<StoredEntity>>> {
        let entities = query_as(
            "SELECT kind, name, body FROM entities WHERE (kind, name) > ($1, $2) ORDER BY kind, name LIMIT $3 OFFSET $4",
        );
        Ok(entities.bind((&read.kind, &read.name, limit, read.nameless)).fetch_all(reading).await?)
    }
}

/// A revision as a column has it.
pub(super) fn of_revision(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// A mark as its column has it.
pub(super) fn of_mark(mark: Mark) -> i64 {
    mark.0.cast_signed()
}

/// The mark that a column has.
pub(super) fn as_mark(stored: i64) -> Mark {
    Mark(stored.cast_unsigned())
}

/// The newest position, if its row exists and is readable.
async fn newest_row(reading: &mut Connection) -> Result<Option<Position>> {
    let revision = Counters::read(reading).await?.revision();
    let mark = mark_of(reading, revision).await?;
    Ok(mark.map(|mark| Position { revision, mark }))
}

/// The mark of a revision, if its row exists and is readable.
async fn mark_of(reading: &mut Connection, revision: Revision) -> Result<Option<Mark>> {
    let mark = query_as("SELECT mark FROM changes WHERE revision = $1");
    let mark = mark.bind(of_revision(revision)).fetch_optional(reading).await?;
    Ok(mark.filter(|found: &Found<(i64,)>| found.bad.is_none()).map(|found| as_mark(found.row.0)))
}

/// Whether a change has a revision; records one that has none.
fn has_revision(reading: &Connection, found: &Found<Row>) -> bool {
    let Some(bad) = found.bad.as_ref().filter(|bad| bad.column == "revision") else { return true };
    let mark = format!("with the mark {}", found.row.mark);
    rows::record(reading.unreadable(), &rows::key(Table::Changes, mark, ""), bad.column, &bad.reason);
    false
}

/// Whether this mark belongs to a change with an unreadable or impossible revision: a follower with the mark then
/// follows this history.
async fn is_mark_of_damaged(reading: &mut Connection, mark: Option<Mark>, counters: &Counters) -> Result<bool> {
    let Some(mark) = mark else { return Ok(false) };
    let found = query_scalar("SELECT COUNT(*) FROM changes WHERE (revision > $1 OR revision < 1) AND mark = $2");
    let found: i64 = found.bind((counters.newest, of_mark(mark))).fetch_one(reading).await?;
    Ok(found > 0)
}

/// Whether the row of a revision is lost: it has no row although it is not before the log's first row, and revisions
/// have no gaps. Old rows are deleted from the log's beginning only. A row with an impossible number may be this one;
/// its mark tells.
async fn is_lost(reading: &mut Connection, revision: i64, counters: &Counters) -> Result<bool> {
    if !(counters.replaced_below.max(2)..=counters.newest).contains(&revision) {
        return Ok(false);
    }
    let is_lost = query_scalar(
        "SELECT COUNT(*) FROM (SELECT 1 FROM changes WHERE revision >= 1 AND revision < $1 LIMIT 1) AS earlier
         WHERE NOT EXISTS (SELECT 1 FROM changes WHERE revision < 1 OR revision > $2)",
    );
    let is_lost: i64 = is_lost.bind((revision, counters.newest)).fetch_one(&mut *reading).await?;
    if is_lost > 0 {
        let key = rows::key(Table::Changes, revision.to_string(), "");
        rows::record(reading.unreadable(), &key, "revision", &"the row is lost: the log has earlier ones");
    }
    Ok(is_lost > 0)
}

/// Whether the changes follow `revision` without a gap: `limit` of them, or all up to the newest.
fn follow(changes: &[Change], revision: Revision, limit: i64, newest: Revision) -> bool {
    let is_full = i64::try_from(changes.len()).is_ok_and(|count| count >= limit);
    let last = changes.last().map_or(revision, |change| change.revision);
    let expected = (revision.0.saturating_add(1)..).map(Revision);
    changes.iter().map(|change| change.revision).eq(expected.take(changes.len())) && (is_full || last == newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Mark = Mark(7);

    fn way_of(revision: u64, mark: Option<Mark>, kept: Option<Mark>) -> Way {
        let known = Known { mark: kept, damaged: false, oldest: Revision(100), replaced_below: Revision(50) };
        way(Revision(revision), mark, &known)
    }

    #[test]
    fn a_follower_of_this_history_continues() {
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
    fn new_followers_and_those_of_a_replaced_database_get_a_snapshot() {
        assert_eq!(way_of(0, None, None), Way::Snapshot);
        assert_eq!(way_of(49, Some(Mark(8)), None), Way::Snapshot);
        assert_eq!(way_of(50, Some(Mark(8)), None), Way::Refuse);
    }
}
