//! Checks the numbers that order the change log against the log itself.
//!
//! An impossible number is not used: the rows of the log show which numbers were given out. Readers use the repaired
//! value, and the next writing transaction stores it.
//!
//! A row proves its revision if the row before it exists, or if a counter has the same number. A row far above all
//! others proves nothing: its own number is damaged. It is moved to the negative number, where no later change can
//! collide with it and its mark is still found, until it is compacted. The change in it may have been confirmed, and
//! entities contain it: unless it was the newest revision's own row, every follower gets a snapshot with a new
//! revision.

use chassis::sql::{BadColumn, Connection, Found, query, query_as, query_scalar};
use contract::feed::Revision;

use super::super::Result;
use super::super::rows::{self, Table};
use super::REPLACED_BELOW;

/// An upper bound of all revisions, which start at the millisecond of the first start. A higher one is damage.
pub(in crate::store) const REVISION_MAX: i64 = i64::MAX / 2;

/// The highest counter that is used although no row has its number. From here, changes never reach [`REVISION_MAX`].
pub(in crate::store) const COUNTER_MAX: i64 = REVISION_MAX / 2;

chassis::record! {
    /// The numbers as they rest, and the highest number of a row of the log.
    struct Row {
        current: i64,
        oldest: i64,
        replaced_below: Option<String>,
        highest: Option<i64>,
    }
}

/// The numbers as they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Counters {
    /// The newest revision: above zero, at most [`REVISION_MAX`].
    pub(in crate::store) newest: i64,
    /// The log holds every change above this revision, which is the newest one or below.
    pub(in crate::store) oldest: i64,
    /// Lower revisions belong to databases that this one replaced; 0 if it replaced none.
    pub(in crate::store) replaced_below: i64,
    /// Whether a stored counter differs, or a row has an impossible number.
    pub(in crate::store) are_damaged: bool,
}

impl Counters {
    /// Reads them.
    pub(in crate::store) async fn read(connection: &mut Connection) -> Result<Self> {
        // SQLite sorts a revision that is not a number after all numbers.
        let found = query_as(
            "SELECT current, oldest, (SELECT value FROM settings WHERE name = $1) AS replaced_below,
                 (SELECT MAX(revision) FROM changes WHERE revision <= $2) AS highest
             FROM revision_counter WHERE id = 1",
        );
        let found: Found<Row> = found.bind((REPLACED_BELOW, i64::MAX)).fetch_one(&mut *connection).await?;
        let Row { current, oldest, replaced_below, highest } = found.row;
        let newest = if found.bad.is_none() && highest == Some(current) && current <= REVISION_MAX {
            current
        } else {
            newest(connection, current, oldest).await?
        };
        if let Some(row) = highest.filter(|row| *row > newest) {
            let reason = format!("no revision above {newest} was given out");
            rows::record(connection.unreadable(), &rows::key(Table::Changes, row.to_string(), ""), "revision", &reason);
        }
        let counters = Self::of(newest, oldest, replaced_below.as_deref());
        let is_damaged =
            current != newest || highest > Some(newest) || found.bad.as_ref().is_some_and(is_of_the_counter);
        // Rows above a counter that was too low may be another damage: no follower is sent them.
        let oldest = if newest > current { newest } else { counters.oldest };
        Ok(Self { oldest, are_damaged: counters.are_damaged || is_damaged, ..counters })
    }

    /// The possible counters for this newest revision.
    fn of(newest: i64, oldest: i64, replaced_below: Option<&str>) -> Self {
        let is_given_out = |number: &i64| (0..=newest).contains(number);
        let replaced = replaced_below.map(|text| text.parse().ok().filter(is_given_out));
        let are_damaged = !is_given_out(&oldest) || replaced == Some(None);
        let oldest = if is_given_out(&oldest) { oldest } else { newest };
        Self { newest, oldest, replaced_below: replaced.flatten().unwrap_or(0), are_damaged }
    }

    /// The newest revision.
    pub(in crate::store) fn revision(&self) -> Revision {
        Revision(self.newest.unsigned_abs())
    }

    /// Lower revisions belong to databases that this one replaced; 0 if it replaced none.
    pub(in crate::store) fn replaced_below(&self) -> Revision {
        Revision(self.replaced_below.unsigned_abs())
    }

    /// Stores the counters as used, within a transaction that holds the writers' lock. Returns whether rows were
    /// quarantined that may hold changes which no other row holds: then every follower needs a snapshot.
    pub(in crate::store) async fn repair(&self, connection: &mut Connection) -> Result<bool> {
        let replace = query("UPDATE revision_counter SET current = $1, oldest = $2 WHERE id = 1");
        replace.bind((self.newest, self.oldest)).execute(&mut *connection).await?;
        let empty = query("UPDATE changes SET effect = '' WHERE effect <> '' AND revision <= $1");
        empty.bind(self.oldest).execute(&mut *connection).await?;
        if self.replaced_below == 0 {
            query("DELETE FROM settings WHERE name = $1").bind(REPLACED_BELOW).execute(&mut *connection).await?;
        }
        // A row of the same number may have been quarantined before.
        let delete = query(
            "DELETE FROM changes WHERE revision < 0
             AND revision IN (SELECT -revision FROM changes WHERE revision > $1 AND revision <= $2)",
        );
        delete.bind((self.newest, i64::MAX)).execute(&mut *connection).await?;
        let quarantined = query("UPDATE changes SET revision = -revision WHERE revision > $1 AND revision <= $2")
            .bind((self.newest, i64::MAX))
            .execute(&mut *connection)
            .await?
            .rows_affected();
        let own = query_scalar("SELECT COUNT(*) FROM changes WHERE revision = $1");
        let own: i64 = own.bind(self.newest).fetch_one(&mut *connection).await?;
        tracing::error!(
            newest = self.newest,
            oldest = self.oldest,
            replaced_below = self.replaced_below,
            "repaired an impossible counter or row number of the change log; gateways that lack a change get a snapshot. \
             Another program wrote to the database, or its disk is damaged: check both"
        );
        Ok(quarantined > u64::from(own == 0))
    }
}

/// The newest revision, where the counter and the highest row differ: that of a witness above the counter, or the
/// counter.
async fn newest(connection: &mut Connection, current: i64, oldest: i64) -> Result<i64> {
    let found = query_as(
        "SELECT revision FROM changes AS change
         WHERE revision <= $1 AND (revision = $2 OR revision = $3
             OR EXISTS (SELECT 1 FROM changes AS earlier WHERE earlier.revision = change.revision - 1))
         ORDER BY revision DESC LIMIT 1",
    );
    let found: Option<Found<(i64,)>> = found.bind((REVISION_MAX, current, oldest)).fetch_optional(connection).await?;
    let witness = found.filter(|found| found.bad.is_none()).map_or(1, |found| found.row.0);
    Ok(if current > COUNTER_MAX { witness } else { witness.max(current) }.max(1))
}

/// The setting's text is judged by its content.
fn is_of_the_counter(bad: &BadColumn) -> bool {
    matches!(bad.column, "current" | "oldest")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_number_is_not_used() {
        let of = |oldest, replaced| Counters::of(100, oldest, replaced);
        let sound = Counters { newest: 100, oldest: 40, replaced_below: 0, are_damaged: false };
        assert_eq!(of(40, None), sound);
        assert_eq!(of(40, Some("100")), Counters { replaced_below: 100, ..sound });
        for damaged in ["101", "9223372036854775807", "99999999999999999999", "-1", "x", ""] {
            assert_eq!(of(40, Some(damaged)), Counters { are_damaged: true, ..sound }, "{damaged}");
        }
        for damaged in [101, i64::MAX, -1, i64::MIN] {
            assert_eq!(of(damaged, None), Counters { oldest: 100, are_damaged: true, ..sound }, "{damaged}");
        }
    }
}
