//! Writes an import: many orders in one transaction.

use std::collections::HashMap;
use std::ops::Range;

use chassis::sql::{Begin, Builder, Connection, Pool, query_as};
use contract::project::ProjectUid;

use super::{apply, erase, row};
use crate::order::{Order, ShipDate};
use crate::store::{FaultKind, IMPORT_WAIT_MAX, ImportError, StoreError};

/// Rows per insert statement. Each has 8 parameters, far below the 32,766 of a statement.
const ROWS_PER_STATEMENT: usize = 500;

/// Writes all orders or none. `may_commit` is called once, right before the commit.
pub(super) async fn write(
    pool: &Pool,
    project: &ProjectUid,
    orders: &[Order],
    may_commit: impl FnOnce() -> bool,
) -> Result<u64, ImportError> {
    if orders.is_empty() {
        return Ok(0);
    }
    let mut transaction = pool.begin(Begin::Write).await.map_err(StoreError::from)?;
    match write_rows(&mut transaction, project, orders).await {
        Ok(()) if !may_commit() => {
            transaction.roll_back().await;
            Err(StoreError::new(FaultKind::Busy, "the caller of the import no longer waits").into())
        }
        Ok(()) => {
            transaction.commit().await.map_err(StoreError::from)?;
            Ok(u64::try_from(orders.len()).unwrap_or(u64::MAX))
        }
        Err(Refused::Taken(rows)) => {
            transaction.roll_back().await;
            Err(find_taken_id(pool, project, orders, rows).await?)
        }
        Err(Refused::Erased) => {
            transaction.roll_back().await;
            Err(ImportError::Erased)
        }
        Err(Refused::Store(error)) => {
            transaction.roll_back().await;
            Err(error.into())
        }
    }
}

enum Refused {
    /// An id among these rows is taken.
    Taken(Range<usize>),
    /// The project was erased.
    Erased,
    Store(StoreError),
}

async fn write_rows(connection: &mut Connection, project: &ProjectUid, orders: &[Order]) -> Result<(), Refused> {
    connection.allow(IMPORT_WAIT_MAX).await.map_err(|error| Refused::Store(error.into()))?;
    apply::lock(connection, project, true).await.map_err(Refused::Store)?;
    if erase::is_erased(connection, project).await.map_err(Refused::Store)? {
        return Err(Refused::Erased);
    }
    let mut written = 0;
    for rows in orders.chunks(ROWS_PER_STATEMENT) {
        let end = written + rows.len();
        insert(connection, project, rows).await.map_err(|error| match error {
            sqlx::Error::Database(error) if error.is_unique_violation() => Refused::Taken(written..end),
            error => Refused::Store(error.into()),
        })?;
        written = end;
    }
    apply::touch(connection, project, i64::try_from(written).unwrap_or(i64::MAX)).await.map_err(Refused::Store)
}

async fn insert(connection: &mut Connection, project: &ProjectUid, rows: &[Order]) -> Result<(), sqlx::Error> {
    let mut query = Builder::new(
        "INSERT INTO orders (project, id, pet_id, quantity, ship_date_micros, complete, status, checksum) VALUES ",
    );
    for (index, order) in rows.iter().enumerate() {
        query.push(if index == 0 { "(" } else { ", (" });
        query.push_bind(project.as_str()).push(", ").push_bind(order.id).push(", ").push_bind(order.pet_id);
        query.push(", ").push_bind(order.quantity).push(", ").push_bind(order.ship_date.map(ShipDate::micros));
        query.push(", ").push_bind(order.complete.map(i64::from)).push(", ").push_bind(order.status.as_str());
        query.push(", ").push_bind(row::checksum(project, order)).push(")");
    }
    query.build().execute(connection).await?;
    Ok(())
}

/// Finds the first order with a taken id. The orders before `refused` were inserted without error.
async fn find_taken_id(
    pool: &Pool,
    project: &ProjectUid,
    orders: &[Order],
    refused: Range<usize>,
) -> Result<ImportError, StoreError> {
    let end = refused.end;
    let mut first_with = HashMap::with_capacity(end);
    for (index, order) in orders.iter().enumerate().take(end) {
        if let Some(first) = first_with.insert(order.id, index) {
            return Ok(ImportError::Repeated { index, first });
        }
        if index >= refused.start {
            let found = query_as::<row::Columns>(row::SELECT_ONE)
                .bind(project.as_str())
                .bind(order.id)
                .fetch_optional(pool)
                .await?;
            if found.is_some() {
                return Ok(ImportError::Exists { index });
            }
        }
    }
    Err(StoreError::corrupt("an insert failed with a taken id, but no order has that id"))
}
