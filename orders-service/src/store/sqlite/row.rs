//! Orders as rows: columns, and the checksum that notices a changed byte.

use contract::project::ProjectId;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use crate::order::{Order, ShipDate, Status};
use crate::store::StoreError;

/// One order; `$1` project, `$2` id.
pub(super) const SELECT_ONE: &str = "SELECT id, pet_id, quantity, ship_date_micros, complete, status, checksum \
                                     FROM orders WHERE project = $1 AND id = $2";

/// Reads the columns `id, pet_id, quantity, ship_date_micros, complete, status, checksum` and checks the last.
pub(super) fn read(project: &ProjectId, row: &SqliteRow) -> Result<Order, StoreError> {
    let id: i64 = row.try_get(0)?;
    let damaged = || StoreError::corrupt(format!("order {id} of project {project} is not what was written"));
    let complete: Option<i64> = row.try_get(4)?;
    let order = Order {
        id,
        pet_id: row.try_get(1)?,
        quantity: row.try_get(2)?,
        ship_date: row.try_get::<Option<i64>, _>(3)?.map(ShipDate::from_micros).transpose().map_err(|_| damaged())?,
        complete: complete.map(|complete| complete != 0),
        status: status(row.try_get(5)?)?,
    };
    if row.try_get::<i64, _>(6)? == checksum(project, &order) { Ok(order) } else { Err(damaged()) }
}

/// A status as stored.
pub(super) fn status(word: &str) -> Result<Status, StoreError> {
    word.parse().map_err(|_| StoreError::corrupt(format!("a stored status is {word:?}")))
}

/// CRC-32 over everything a row says, its project and id included: a row that moved to another key is noticed too.
pub(super) fn checksum(project: &ProjectId, order: &Order) -> i64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(project.as_str().as_bytes());
    hasher.update(&order.id.to_le_bytes());
    for number in [order.pet_id, order.quantity, order.ship_date.map(ShipDate::micros), order.complete.map(i64::from)] {
        hasher.update(&[u8::from(number.is_some())]);
        hasher.update(&number.unwrap_or_default().to_le_bytes());
    }
    hasher.update(order.status.as_str().as_bytes());
    i64::from(hasher.finalize())
}
