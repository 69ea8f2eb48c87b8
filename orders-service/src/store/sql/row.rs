//! Orders as rows: columns, and a checksum that detects damaged bytes.

use contract::project::ProjectUid;

use crate::order::{Order, ShipDate, Status};
use crate::store::StoreError;

/// One order; `$1` project, `$2` id.
pub(super) const SELECT_ONE: &str = "SELECT id, pet_id, quantity, ship_date_micros, complete, status, checksum \
                                     FROM orders WHERE project = $1 AND id = $2";

/// The columns `id, pet_id, quantity, ship_date_micros, complete, status, checksum`.
pub(super) type Columns = (i64, Option<i64>, Option<i64>, Option<i64>, Option<i64>, String, i64);

/// Reads the columns and verifies the checksum.
pub(super) fn read(project: &ProjectUid, columns: Columns) -> Result<Order, StoreError> {
    let (id, pet_id, quantity, ship_date, complete, word, written) = columns;
    let damaged =
        || StoreError::corrupt(format!("order {id} of project {project} is damaged: its checksum does not match"));
    let order = Order {
        id,
        pet_id,
        quantity,
        ship_date: ship_date.map(ShipDate::from_micros).transpose().map_err(|_| damaged())?,
        complete: complete.map(|complete| complete != 0),
        status: status(&word)?,
    };
    if written == checksum(project, &order) { Ok(order) } else { Err(damaged()) }
}

/// A status as stored.
pub(super) fn status(word: &str) -> Result<Status, StoreError> {
    word.parse().map_err(|_| StoreError::corrupt(format!("an order has the unknown status {word:?}")))
}

/// CRC-32 of the whole row. It includes project and id, so it also detects a row under a wrong key.
pub(super) fn checksum(project: &ProjectUid, order: &Order) -> i64 {
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
