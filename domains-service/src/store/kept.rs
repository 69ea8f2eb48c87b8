//! A count of each owner's rows, updated with every write: checking a maximum then reads one row and scans nothing.
//!
//! A count is never too low. Deleting rows for their age leaves it too high; it is corrected the next time the maximum
//! is reached.

use chassis::sql::{Connection, query, query_scalar};

use super::Result;

/// Counts one more row of `owner` and returns the count. A damaged count is treated as too high.
pub(super) async fn one_more(connection: &mut Connection, owner: &str) -> Result<i64> {
    let kept = query_scalar(
        "INSERT INTO kept_rows (owner, kept) VALUES ($1, 1)
         ON CONFLICT (owner) DO UPDATE SET kept =
             CASE WHEN kept_rows.kept BETWEEN 0 AND 1000000000 THEN kept_rows.kept + 1 ELSE 1000000000 END
         RETURNING kept",
    );
    Ok(kept.bind(owner).fetch_one(connection).await?)
}

/// Puts the count of `owner` right.
pub(super) async fn put_right(connection: &mut Connection, owner: &str, kept: i64) -> Result<()> {
    query("UPDATE kept_rows SET kept = $2 WHERE owner = $1").bind((owner, kept)).run(connection).await
}

/// Deletes the count of an owner that is gone.
pub(super) async fn forget(connection: &mut Connection, owner: &str) -> Result<()> {
    query("DELETE FROM kept_rows WHERE owner = $1").bind(owner).run(connection).await
}
