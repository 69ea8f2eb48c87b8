//! Erases a project: a bounded number of rows per transaction, so that changes of other projects can run in between.
//!
//! The first transaction records the project as erased; after its commit, changes to the project are refused. A
//! repeated call continues an erasure that was interrupted.

use chassis::sql::{Begin, Connection, Pool, query, query_scalar};
use contract::project::ProjectUid;
use contract::time::UnixMillis;

use super::apply;
use crate::store::StoreError;

/// Rows of each table deleted by one transaction.
const ROWS_AT_ONCE: i64 = 2_000;

/// How long an erased project is remembered. No gateway is disconnected from the control plane for that long.
const REMEMBERED_MILLIS: i64 = 400 * 86_400 * 1_000;

/// Whether the project was erased.
pub(super) async fn is_erased(connection: &mut Connection, project: &ProjectUid) -> Result<bool, StoreError> {
    let found: Option<i64> = query_scalar("SELECT erased_at_millis FROM erased_projects WHERE project = $1")
        .bind(project.as_str())
        .fetch_optional(connection)
        .await?;
    Ok(found.is_some())
}

/// Erases some rows. Returns whether the project has more.
pub(super) async fn some(pool: &Pool, project: &ProjectUid, at: UnixMillis) -> Result<bool, StoreError> {
    let mut transaction = pool.begin(Begin::Write).await?;
    match some_in(&mut transaction, project, at).await {
        Ok(more) => Ok(transaction.commit().await.map(|()| more)?),
        Err(error) => {
            transaction.roll_back().await;
            Err(error)
        }
    }
}

async fn some_in(connection: &mut Connection, project: &ProjectUid, at: UnixMillis) -> Result<bool, StoreError> {
    // Creations check for an erased project under the same lock.
    apply::lock(connection, project, true).await?;
    query("INSERT INTO erased_projects (project, erased_at_millis) VALUES ($1, $2) ON CONFLICT (project) DO NOTHING")
        .bind(project.as_str())
        .bind(at.0)
        .execute(&mut *connection)
        .await?;
    let mut more = false;
    for statement in [
        "DELETE FROM idempotency_keys WHERE project = $1 AND idempotency_key IN \
         (SELECT idempotency_key FROM idempotency_keys WHERE project = $1 LIMIT $2)",
        "DELETE FROM order_outbox WHERE number IN (SELECT number FROM order_outbox WHERE project = $1 LIMIT $2)",
        "DELETE FROM order_events WHERE project = $1 AND order_id IN \
         (SELECT order_id FROM order_events WHERE project = $1 ORDER BY order_id LIMIT $2)",
        "DELETE FROM orders WHERE project = $1 AND id IN \
         (SELECT id FROM orders WHERE project = $1 ORDER BY id LIMIT $2)",
    ] {
        let deleted = query(statement).bind(project.as_str()).bind(ROWS_AT_ONCE).execute(&mut *connection).await?;
        more |= i64::try_from(deleted.rows_affected()).unwrap_or(i64::MAX) >= ROWS_AT_ONCE;
    }
    if !more {
        query("DELETE FROM stores WHERE project = $1").bind(project.as_str()).execute(&mut *connection).await?;
        query("DELETE FROM erased_projects WHERE erased_at_millis < $1")
            .bind(at.0.saturating_sub(REMEMBERED_MILLIS))
            .execute(connection)
            .await?;
    }
    Ok(more)
}
