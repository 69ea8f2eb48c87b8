//! Orders and their rules, independent of storage, clock and HTTP.
//!
//! An order is pending until it is shipped or cancelled. Both states are final (specification, section 3).

mod date;
mod id;

pub use date::{InvalidShipDate, ShipDate};
pub use id::parse_id;

contract::words! {
    /// The state of an order.
    #[derive(Default)]
    pub enum Status {
        /// Neither shipped nor cancelled.
        #[default]
        Pending = "pending",
        /// Shipped; this cannot be reversed.
        Shipped = "shipped",
        /// Cancelled while it was pending.
        Cancelled = "cancelled",
    }
}

/// An order of a project. Unknown fields are `None` and absent in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Unique within the project.
    pub id: i64,
    /// The animal in the order.
    pub pet_id: Option<i64>,
    /// Units ordered. The specification states no bounds, so an imported order may have any number here.
    pub quantity: Option<i64>,
    /// Expected ship date; the actual one once the order is shipped.
    pub ship_date: Option<ShipDate>,
    /// Whether the order has been fulfilled.
    pub complete: Option<bool>,
    /// The state of the order; not part of `/v1`.
    pub status: Status,
}

/// Why an order cannot be cancelled: only a pending one can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CancelError {
    /// Shipping cannot be reversed.
    #[error("the order has already shipped")]
    AlreadyShipped,
    /// The order was cancelled before.
    #[error("the order is already cancelled")]
    AlreadyCancelled,
}

/// Why an order cannot be shipped: only a pending one can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShipError {
    /// The order was shipped before.
    #[error("the order has already shipped")]
    AlreadyShipped,
    /// The order is cancelled.
    #[error("the order is cancelled")]
    Cancelled,
}

impl Order {
    /// The order after its cancellation.
    pub fn cancel(self) -> Result<Self, CancelError> {
        match self.status {
            Status::Pending => Ok(Self { status: Status::Cancelled, ..self }),
            Status::Shipped => Err(CancelError::AlreadyShipped),
            Status::Cancelled => Err(CancelError::AlreadyCancelled),
        }
    }

    /// The order after it was shipped: `shipped_at` replaces the expected ship date, and the order is complete.
    pub fn ship(self, shipped_at: ShipDate) -> Result<Self, ShipError> {
        match self.status {
            Status::Pending => {
                Ok(Self { status: Status::Shipped, ship_date: Some(shipped_at), complete: Some(true), ..self })
            }
            Status::Shipped => Err(ShipError::AlreadyShipped),
            Status::Cancelled => Err(ShipError::Cancelled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(status: Status) -> Order {
        Order { id: 7, pet_id: Some(1), quantity: None, ship_date: None, complete: Some(false), status }
    }

    // rule: 3.1, 4.2.4
    #[test]
    fn only_a_pending_order_can_be_cancelled() {
        assert_eq!(order(Status::Pending).cancel(), Ok(order(Status::Cancelled)));
        assert_eq!(order(Status::Shipped).cancel(), Err(CancelError::AlreadyShipped));
        assert_eq!(order(Status::Cancelled).cancel(), Err(CancelError::AlreadyCancelled));
    }

    // rule: 3.2, 3.3
    #[test]
    fn only_a_pending_order_can_be_shipped_and_shipping_sets_its_date() {
        let at: ShipDate = "2026-01-02T03:04:05Z".parse().unwrap();
        let shipped = order(Status::Pending).ship(at).unwrap();
        assert_eq!((shipped.status, shipped.ship_date, shipped.complete), (Status::Shipped, Some(at), Some(true)));
        assert_eq!(shipped.ship(at), Err(ShipError::AlreadyShipped));
        assert_eq!(order(Status::Cancelled).ship(at), Err(ShipError::Cancelled));
    }

    #[test]
    fn every_status_parses_from_its_word_and_other_words_are_rejected() {
        for status in Status::ALL {
            assert_eq!(status.as_str().parse(), Ok(*status));
        }
        assert_eq!("Pending".parse::<Status>().unwrap_err().to_string(), "use one of: pending, shipped, cancelled");
    }
}
