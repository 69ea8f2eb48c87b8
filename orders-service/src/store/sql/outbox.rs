//! The outbox table: each change writes an event; the outbox relay reads and deletes them.

use chassis::sql::{Begin, Builder, Connection, Found, Pool, query, query_as};
use contract::project::ProjectUid;
use contract::time::UnixMillis;

use super::{COUNTED_MAX, within};
use crate::order::Order;
use crate::store::outbox::checksum;
use crate::store::{EventKind, StoreError, Undelivered, Waiting};

/// Events deleted by one statement. Each needs a parameter, and a statement may have 32,766.
const DELETED_AT_ONCE: usize = 1_000;

/// Repairs damaged event numbers: if SQLite's sequence or a number is too high, continues from a number that was never
/// assigned. SQLite assigns no number after the highest one, so otherwise every change of every project would fail.
pub(super) async fn count_on(pool: &Pool) -> anyhow::Result<()> {
    let fresh = COUNTED_MAX / 2 + i64::from_le_bytes(chassis::random::bytes()?).rem_euclid(COUNTED_MAX / 4);
    let lower = query("UPDATE order_outbox SET number = number - $1 WHERE number >= $1").bind(COUNTED_MAX);
    let lowered = lower.execute(pool).await?.rows_affected();
    let count = query("UPDATE sqlite_sequence SET seq = $1 WHERE name = 'order_outbox' AND seq >= $2");
    let counted = count.bind(fresh).bind(COUNTED_MAX).execute(pool).await?.rows_affected();
    if lowered + counted > 0 {
        tracing::error!("repaired damaged event numbers in the table order_outbox; check the disk");
    }
    Ok(())
}

chassis::record! {
    struct Row {
        number: i64,
        project: String,
        event: String,
        at_millis: i64,
        order_json: String,
        checksum: i64,
    }
}

/// Writes an event in the transaction of its change.
pub(super) async fn add(
    connection: &mut Connection,
    project: &ProjectUid,
    order: &Order,
    event: EventKind,
    at: UnixMillis,
) -> Result<(), StoreError> {
    let snapshot = Undelivered::snapshot(order);
    let sum = checksum(project, event, at, &snapshot);
    query("INSERT INTO order_outbox (project, event, at_millis, order_json, checksum) VALUES ($1, $2, $3, $4, $5)")
        .bind(project.as_str())
        .bind(event.as_str())
        .bind(at.0)
        .bind(snapshot)
        .bind(sum)
        .execute(connection)
        .await?;
    Ok(())
}

/// The oldest events.
pub(super) async fn read(pool: &Pool, limit: u32) -> Result<Waiting, StoreError> {
    let text =
        "SELECT number, project, event, at_millis, order_json, checksum FROM order_outbox ORDER BY number LIMIT $1";
    let rows: Vec<Found<Row>> = within(query_as(text).bind(i64::from(limit)).fetch_all(pool)).await?;
    let mut waiting = Waiting::default();
    for Found { row: Row { number, project, event, at_millis, order_json, checksum }, bad } in rows {
        if bad.is_none() {
            waiting.add(number, &project, &event, at_millis, order_json, checksum);
        } else {
            waiting.damaged.push(number);
        }
    }
    Ok(waiting)
}

/// Deletes the delivered events, and the oldest undelivered ones above `keep`.
pub(super) async fn forget(pool: &Pool, delivered: &[i64], keep: u32) -> Result<u64, StoreError> {
    let mut transaction = pool.begin(Begin::Write).await?;
    match forget_in(&mut transaction, delivered, keep).await {
        Ok(dropped) => Ok(transaction.commit().await.map(|()| dropped)?),
        Err(error) => {
            transaction.roll_back().await;
            Err(error)
        }
    }
}

async fn forget_in(connection: &mut Connection, delivered: &[i64], keep: u32) -> Result<u64, StoreError> {
    for numbers in delivered.chunks(DELETED_AT_ONCE) {
        let mut query = Builder::new("DELETE FROM order_outbox WHERE number IN (");
        for (index, number) in numbers.iter().enumerate() {
            query.push(if index == 0 { "" } else { ", " }).push_bind(*number);
        }
        query.push(")");
        query.build().execute(&mut *connection).await?;
    }
    let text = "DELETE FROM order_outbox WHERE number <= \
                (SELECT number FROM order_outbox ORDER BY number DESC LIMIT 1 OFFSET $1)";
    let dropped = query(text).bind(i64::from(keep)).execute(connection).await?;
    Ok(dropped.rows_affected())
}
