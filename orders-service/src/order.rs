//! What an order is and what may happen to it: the rules, without storage, clock or HTTP.
//!
//! An order is pending until it is shipped or cancelled, and then stays what it is (specification, section 3).

mod date;
mod id;

pub use date::{InvalidShipDate, ShipDate};
pub use id::parse_id;

contract::words! {
    /// Where an order stands.
    #[derive(Default)]
    pub enum Status {
        /// Placed, neither shipped nor cancelled.
        #[default]
        Pending = "pending",
        /// On its way or arrived; shipping cannot be reversed.
        Shipped = "shipped",
        /// Called off while it was pending.
        Cancelled = "cancelled",
    }
}

/// One order of one project. What is not known is `None` and absent on the wire.
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
    /// Where the order stands; not part of `/v1`.
    pub status: Status,
}

/// Why an order cannot be cancelled: only a pending one can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CancelError {
    /// Shipping cannot be reversed.
    #[error("the order has already shipped")]
    AlreadyShipped,
    /// There is nothing left to cancel.
    #[error("the order is cancelled already")]
    AlreadyCancelled,
}

/// Why an order cannot be shipped: only a pending one can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShipError {
    /// It is on its way.
    #[error("the order has already shipped")]
    AlreadyShipped,
    /// It was called off.
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

    /// The order after it was shipped at `shipped_at`: the expected ship date gives way to the actual one, and the
    /// order counts as fulfilled.
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
    fn only_a_pending_order_can_be_shipped_and_shipping_says_when() {
        let at: ShipDate = "2026-01-02T03:04:05Z".parse().unwrap();
        let shipped = order(Status::Pending).ship(at).unwrap();
        assert_eq!((shipped.status, shipped.ship_date, shipped.complete), (Status::Shipped, Some(at), Some(true)));
        assert_eq!(shipped.ship(at), Err(ShipError::AlreadyShipped));
        assert_eq!(order(Status::Cancelled).ship(at), Err(ShipError::Cancelled));
    }

    #[test]
    fn every_status_parses_from_its_own_word_and_no_other() {
        for status in Status::ALL {
            assert_eq!(status.as_str().parse(), Ok(*status));
        }
        assert_eq!("Pending".parse::<Status>().unwrap_err().to_string(), "use one of: pending, shipped, cancelled");
    }
}
