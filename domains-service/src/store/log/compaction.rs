//! Bounds the change log, and removes erased data from it.

use chassis::sql::{Connection, query, query_as, query_scalar};
use contract::time::UnixMillis;

use super::super::{Result, Store, rows, set_setting};

/// Marks that stay after their changes are deleted: about 30 MB. A follower further behind cannot prove that it
/// followed this history, and an operator decides.
const MARKS_KEPT: i64 = 1_000_000;

/// The setting with the time of the last erasure of a project that the log still contains.
const ERASED_AT: &str = "erased_at";

/// Time for which the log contains an erased project: gateways that were away for less need no snapshot.
const ERASED_FROM_LOG_AFTER_MILLIS: i64 = 3_600_000;

/// Records an erasure now: the log's present content is deleted after [`ERASED_FROM_LOG_AFTER_MILLIS`].
pub(in crate::store) async fn erase_earlier(connection: &mut Connection, now: UnixMillis) -> Result<()> {
    set_setting(ERASED_AT, &now.0.to_string()).run(connection).await
}

impl Store {
    /// Deletes the oldest changes beyond `keep` rows, the changes of erased projects, and the marks beyond
    /// [`MARKS_KEPT`]. A follower that needs deleted changes gets a snapshot. Returns the number of deleted changes.
    pub(crate) async fn compact_log(&self, keep: u64) -> Result<u64> {
        self.compact(i64::try_from(keep).unwrap_or(i64::MAX), MARKS_KEPT).await
    }

    /// Removes data that was erased [`ERASED_FROM_LOG_AFTER_MILLIS`] ago from the database's files, if that is still to
    /// do: after [`Store::compact_log`] and all other deletions.
    pub(crate) async fn wipe_erased(&self) -> Result<()> {
        let Some(erased) = self.setting(ERASED_AT).await? else { return Ok(()) };
        let past = self.clock.now().plus(-ERASED_FROM_LOG_AFTER_MILLIS);
        // An unreadable time counts as past.
        if erased.parse().is_ok_and(|erased: i64| erased > past.0) {
            return Ok(());
        }
        if let Err(error) = self.database.wipe_deleted().await {
            tracing::info!(%error, "erased data is still in the database's write-ahead log; truncating it again in a minute");
            return Ok(());
        }
        query("DELETE FROM settings WHERE name = $1 AND value = $2").bind((ERASED_AT, &erased)).run(self.writer()).await
    }

    pub(in crate::store) async fn compact(&self, keep: i64, keep_marks: i64) -> Result<u64> {
        let mut write = self.write().await?;
        let (current, oldest): (i64, i64) =
            query_as("SELECT current, oldest FROM revision_counter WHERE id = 1").fetch_one(write.connection()).await?;
        let past = write.now().plus(-ERASED_FROM_LOG_AFTER_MILLIS);
        let erased = query_scalar(
            "SELECT MAX(revision) FROM changes WHERE at_ms <= $1 AND EXISTS (SELECT 1 FROM settings WHERE name = $2)",
        );
        let erased: Option<i64> = erased.bind((past.0, ERASED_AT)).fetch_one(write.connection()).await?;
        let floor = current.saturating_sub(keep).max(erased.unwrap_or(0));
        if floor <= oldest {
            return Ok(0);
        }
        let forgotten = query("UPDATE changes SET effect = '' WHERE revision > $1 AND revision <= $2")
            .bind((oldest, floor))
            .execute(write.connection())
            .await?
            .rows_affected();
        let delete_marks = query("DELETE FROM changes WHERE revision <= $1");
        delete_marks.bind(floor.saturating_sub(keep_marks)).execute(write.connection()).await?;
        rows::forget_changes(self.reader().unreadable(), floor);
        query("UPDATE revision_counter SET oldest = $1 WHERE id = 1").bind(floor).execute(write.connection()).await?;
        write.commit().await?;
        Ok(forgotten)
    }
}
