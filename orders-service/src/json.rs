//! Orders as JSON: `/v1` with exactly its five fields, and the lines of import and export, which add the status.

use bytes::Bytes;
use serde::Serialize;

use crate::order::{Order, ShipDate, Status};

contract::message! {
    /// An order in `/v1` (specification, section 2), in which no member is required.
    pub(crate) sparse OrderV1 as "Order" = "Unknown fields are absent." {
        id: i64 = "Unique order identifier.", "optional";
        pet_id as "petId": Option<i64> = "Identifier of the animal in the order.";
        quantity: Option<i64> = "Number of units ordered.";
        ship_date as "shipDate": Option<ShipDate> = "Expected or actual ship date.";
        complete: Option<bool> = "Whether the order has been fulfilled.";
    }
}

/// Writes a JSON array of `/v1` orders piece by piece.
pub(crate) struct JsonArray {
    written: Vec<u8>,
    first: bool,
}

impl JsonArray {
    /// Starts an array: writes its opening bracket.
    pub(crate) fn begin() -> Self {
        Self { written: vec![b'['], first: true }
    }

    /// Adds orders.
    pub(crate) fn push(&mut self, orders: &[Order]) {
        for order in orders {
            if !std::mem::take(&mut self.first) {
                self.written.push(b',');
            }
            let Order { id, pet_id, quantity, ship_date, complete, status: _ } = *order;
            write(&mut self.written, &OrderV1 { id, pet_id, quantity, ship_date, complete });
        }
    }

    /// Returns the text written since the last call.
    pub(crate) fn take(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.written))
    }

    /// Returns the remaining text with the closing bracket.
    pub(crate) fn end(mut self) -> Bytes {
        self.written.push(b']');
        Bytes::from(self.written)
    }
}

contract::message! {
    /// An order in `/v2`, and one line of an import or export: the five fields and the status.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[serde(deny_unknown_fields)]
    pub(crate) sparse OrderLine as "OrderV2" = "Unknown fields are absent." {
        id: i64 = "Unique order identifier.";
        pet_id as "petId": Option<i64> = "Identifier of the animal in the order.";
        quantity: Option<i64> = "Number of units ordered.";
        ship_date as "shipDate": Option<ShipDate> = "Expected or actual ship date.";
        complete: Option<bool> = "Whether the order has been fulfilled.";
        #[serde(default)]
        status: Status = "Only a pending order can be cancelled or shipped.";
    }
}

impl From<Order> for OrderLine {
    fn from(order: Order) -> Self {
        let Order { id, pet_id, quantity, ship_date, complete, status } = order;
        Self { id, pet_id, quantity, ship_date, complete, status }
    }
}

impl From<OrderLine> for Order {
    fn from(line: OrderLine) -> Self {
        let OrderLine { id, pet_id, quantity, ship_date, complete, status } = line;
        Self { id, pet_id, quantity, ship_date, complete, status }
    }
}

/// Orders as JSON lines.
pub(crate) fn lines(orders: &[Order]) -> Bytes {
    let mut written = Vec::with_capacity(orders.len() * 128);
    for order in orders {
        write(&mut written, &OrderLine::from(*order));
        written.push(b'\n');
    }
    Bytes::from(written)
}

fn write(to: &mut Vec<u8>, value: &impl Serialize) {
    // Writing numbers, booleans and ASCII text to memory cannot fail.
    let _ = serde_json::to_writer(to, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(id: i64) -> Order {
        Order {
            id,
            pet_id: Some(-2),
            quantity: Some(3),
            ship_date: Some("2026-01-31T09:30:00Z".parse().unwrap()),
            complete: Some(false),
            status: Status::Cancelled,
        }
    }

    fn bare(id: i64) -> Order {
        Order { id, pet_id: None, quantity: None, ship_date: None, complete: None, status: Status::Pending }
    }

    // rule: 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7
    #[test]
    fn the_array_has_exactly_the_five_fields_and_omits_unknown_ones() {
        let mut array = JsonArray::begin();
        array.push(&[full(1)]);
        array.push(&[]);
        array.push(&[bare(i64::MAX)]);
        let head = array.take();
        assert_eq!(
            [head, array.end()].concat(),
            br#"[{"id":1,"petId":-2,"quantity":3,"shipDate":"2026-01-31T09:30:00Z","complete":false},{"id":9223372036854775807}]"#
        );
        assert_eq!(JsonArray::begin().end(), "[]");
    }

    #[test]
    fn lines_read_back_as_they_were_written() {
        let written = lines(&[full(1), bare(2)]);
        let read: Vec<Order> = written
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice::<OrderLine>(line).unwrap().into())
            .collect();
        assert_eq!(read, [full(1), bare(2)]);
    }
}
