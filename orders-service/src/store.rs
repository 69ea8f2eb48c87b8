//! The store of orders and its guarantees.
//!
//! The store keeps the orders of all projects, each under `(project, id)`. A change that was answered is on disk, and
//! the rules of [`crate::order`] are applied inside the transaction that writes, so that of two changes of one order
//! one sees the other. If the store cannot answer, it returns an error within [`WAIT_MAX`]; it never returns uncertain
//! data.

#[cfg(test)]
pub(crate) mod conformance;
mod fault;
mod outbox;
mod sql;

use std::time::Duration;

use contract::time::UnixMillis;

use crate::order::{Order, ShipDate, Status};

pub use fault::{FaultKind, StoreError};
pub use outbox::{Undelivered, Waiting};
pub use sql::{OrderStore, finish_restore, newest_schema};

/// How long a request waits for the store before it fails: a little more than the store's own wait for a lock.
pub const WAIT_MAX: Duration = Duration::from_secs(5);

/// Longest time to write an import.
pub const IMPORT_WAIT_MAX: Duration = Duration::from_mins(2);

/// State of a project's orders as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edition {
    /// Increases with every change of any order of the project; 0 if the project never had an order.
    pub version: i64,
    /// Number of orders.
    pub orders: i64,
}

/// Orders by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// Neither shipped nor cancelled.
    pub pending: i64,
    /// Shipped.
    pub shipped: i64,
    /// Cancelled.
    pub cancelled: i64,
}

/// Why an order was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError<E> {
    /// The project has no such order.
    #[error("unknown order")]
    NotFound,
    /// The order's state forbids it.
    #[error("{0}")]
    Refused(E),
    /// The store failed. The change was not acknowledged; repeating the request is safe.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why nothing was imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The order at `index` (from 0) of the list has the id of an existing order of the project.
    #[error("the project already has an order with this id")]
    Exists {
        /// Index in the list.
        index: usize,
    },
    /// The order at `index` has the id of an earlier order in the list.
    #[error("an earlier order of the import has the same id")]
    Repeated {
        /// Index in the list.
        index: usize,
        /// Index of the earlier order.
        first: usize,
    },
    /// The project was erased.
    #[error("the project was erased")]
    Erased,
    /// The store failed; no order was acknowledged.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A new order without an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOrder {
    /// The animal in the order.
    pub pet_id: Option<i64>,
    /// Units ordered.
    pub quantity: Option<i64>,
    /// Expected ship date.
    pub ship_date: Option<ShipDate>,
}

impl NewOrder {
    /// The order in its first state.
    pub fn placed(self, id: i64) -> Order {
        let Self { pet_id, quantity, ship_date } = self;
        Order { id, pet_id, quantity, ship_date, complete: Some(false), status: Status::Pending }
    }
}

/// The idempotency key of a creation: repeated requests with it create one order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The client's key.
    pub key: String,
    /// Fingerprint of the order's values.
    pub fingerprint: u32,
    /// When the key expires.
    pub expires_at: UnixMillis,
}

/// The result of a creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// This request created the order.
    Now(Order),
    /// An earlier request with the same key created the order; this is its first state.
    Before(Order),
}

/// Why no order was created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// The key was used for another order.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// The id 2^53 - 1 is taken; many clients would round a larger one.
    #[error("the project has no order ids left")]
    IdsExhausted,
    /// The project was erased.
    #[error("the project was erased")]
    Erased,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A change of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// `created`, `shipped` or `cancelled`.
    pub kind: EventKind,
    /// Time of the change, by the service's clock.
    pub at: UnixMillis,
}

contract::words! {
    /// The kind of a change.
    pub enum EventKind {
        /// The order was placed through the API.
        Created = "created",
        /// The order was shipped.
        Shipped = "shipped",
        /// The order was cancelled.
        Cancelled = "cancelled",
    }
}

/// The filters of a page. `None` does not filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Orders in this state.
    pub status: Option<Status>,
    /// Orders of this pet.
    pub pet_id: Option<i64>,
    /// Orders with this value of `complete`. Orders without a value match neither.
    pub complete: Option<bool>,
    /// Ship date at this moment or later. Orders without one do not match.
    pub ship_date_from: Option<ShipDate>,
    /// Ship date before this moment. Orders without one do not match.
    pub ship_date_before: Option<ShipDate>,
}

/// The sort of a page. Orders with equal ship dates are sorted by id in the same direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Smallest id first.
    #[default]
    Id,
    /// Largest id first.
    IdDescending,
    /// Earliest ship date first; orders without one before all others.
    ShipDate,
    /// Latest ship date first; orders without one after all others.
    ShipDateDescending,
}

/// The position before the first order of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    /// Ship date of the previous page's last order in microseconds; `None` if it has none.
    pub ship_date_micros: Option<i64>,
    /// Id of that order.
    pub id: i64,
}

/// The query of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageQuery {
    /// The filters.
    pub filter: Filter,
    /// The sort.
    pub sort: Sort,
    /// Position of the page; `None` for the first page.
    pub after: Option<After>,
    /// Most orders in the page.
    pub limit: u32,
}
