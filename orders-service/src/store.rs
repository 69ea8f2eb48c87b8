//! Where orders are kept: what every store promises.
//!
//! The store keeps the orders of all projects, each under `(project, id)`. A change that was answered is on disk, and
//! the rules of [`crate::order`] are applied inside the transaction that writes, so that of two changes of one order
//! one sees the other. A store that cannot answer says so within [`WAIT_MAX`] and never guesses.

#[cfg(test)]
pub(crate) mod conformance;
mod fault;
mod outbox;
mod sql;

use std::time::Duration;

use async_trait::async_trait;
use chassis::sql::Database;
use contract::project::ProjectUid;
use contract::time::UnixMillis;

use crate::order::{CancelError, Order, ShipDate, ShipError, Status};

pub use fault::{FaultKind, StoreError};
pub use outbox::{Undelivered, Waiting};
pub use sql::{SqlOrders, finish_restore, newest_schema};

/// How long a request waits for the store before it is told so: a little more than the store's own wait for a lock.
pub const WAIT_MAX: Duration = Duration::from_secs(5);

/// How long an import may take to be written.
pub const IMPORT_WAIT_MAX: Duration = Duration::from_mins(2);

/// State of a project's orders as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edition {
    /// Rises with every change of any order of the project; 0 when there never was an order.
    pub version: i64,
    /// How many orders there are.
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
    #[error("there is no such order")]
    NotFound,
    /// The order's state forbids it.
    #[error("{0}")]
    Refused(E),
    /// Nobody could tell. The change has not been acknowledged; asking again is safe.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why nothing was imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The order at `index` (from 0) of the given list has the id of an order the project has already.
    #[error("the project has an order with this id already")]
    Exists {
        /// Place in the list that was given.
        index: usize,
    },
    /// The order at `index` has the id of an earlier order in the list.
    #[error("an earlier order of the import has the same id")]
    Repeated {
        /// Place in the list that was given.
        index: usize,
        /// Place of the earlier one.
        first: usize,
    },
    /// The project was erased.
    #[error("the project was erased")]
    Erased,
    /// Nobody could tell; nothing was acknowledged.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An order to be, before it has an id.
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
    /// The order when it has just been placed.
    pub fn placed(self, id: i64) -> Order {
        let Self { pet_id, quantity, ship_date } = self;
        Order { id, pet_id, quantity, ship_date, complete: Some(false), status: Status::Pending }
    }
}

/// The name a client gave to one creation, so that it happens once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The client's key.
    pub key: String,
    /// Of what was asked under it.
    pub fingerprint: u32,
    /// Until when the outcome is remembered.
    pub expires_at: UnixMillis,
}

/// How a creation went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// The order was made now.
    Now(Order),
    /// The same request made it before; this is the order as it was then.
    Before(Order),
}

/// Why no order was created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// The key was used for something else.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// Every id up to 2^53 - 1 is taken; larger ones would be rounded by many clients.
    #[error("the project has no order ids left")]
    IdsExhausted,
    /// The project was erased.
    #[error("the project was erased")]
    Erased,
    /// Nobody could tell.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Something that happened to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// `created`, `shipped` or `cancelled`.
    pub kind: EventKind,
    /// When, by the service's clock.
    pub at: UnixMillis,
}

contract::words! {
    /// What happened to an order.
    pub enum EventKind {
        /// It was placed through the API.
        Created = "created",
        /// It was shipped.
        Shipped = "shipped",
        /// It was cancelled.
        Cancelled = "cancelled",
    }
}

/// Which orders a page shows. What is `None` does not restrict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Orders in this state.
    pub status: Option<Status>,
    /// Orders of this pet.
    pub pet_id: Option<i64>,
    /// Orders that say they are (not) fulfilled. Orders that do not say match neither.
    pub complete: Option<bool>,
    /// Ship date at this moment or later. Orders without one do not match.
    pub ship_date_from: Option<ShipDate>,
    /// Ship date before this moment. Orders without one do not match.
    pub ship_date_before: Option<ShipDate>,
}

/// In which order a page shows orders. Equal ship dates are ordered by id in the same direction.
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

/// Where a page begins: after this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    /// The ship date in microseconds of the last order seen, when the sort is by ship date; `None` had none.
    pub ship_date_micros: Option<i64>,
    /// Its id.
    pub id: i64,
}

/// One page of orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageQuery {
    /// Which.
    pub filter: Filter,
    /// In which order.
    pub sort: Sort,
    /// After which place; `None` from the beginning.
    pub after: Option<After>,
    /// How many at most.
    pub limit: u32,
}

/// A store of orders. Every implementation passes the same suite.
#[async_trait]
pub trait OrderStore: Send + Sync {
    /// Identifies this database; no other one has the same id.
    fn store_id(&self) -> &str;

    /// Version and number of a project's orders, as of one moment.
    async fn edition(&self, project: &ProjectUid) -> Result<Edition, StoreError>;

    /// The next `limit` orders with ids above `after`, in id order. Holds nothing once it has answered.
    async fn batch(&self, project: &ProjectUid, after: Option<i64>, limit: u32) -> Result<Vec<Order>, StoreError>;

    /// One page of orders.
    async fn page(&self, project: &ProjectUid, query: &PageQuery) -> Result<Vec<Order>, StoreError>;

    /// One order.
    async fn find(&self, project: &ProjectUid, id: i64) -> Result<Option<Order>, StoreError>;

    /// What happened to an order, oldest first; `None` when there is no such order.
    async fn events(&self, project: &ProjectUid, id: i64) -> Result<Option<Vec<Event>>, StoreError>;

    /// Whether any order of the project is for this pet.
    async fn knows_pet(&self, project: &ProjectUid, pet_id: i64) -> Result<bool, StoreError>;

    /// How many orders there are in each state.
    async fn summary(&self, project: &ProjectUid) -> Result<Summary, StoreError>;

    /// Cancels a pending order. When this answers `Ok`, the cancellation is on disk.
    async fn cancel(&self, project: &ProjectUid, id: i64, at: UnixMillis) -> Result<Order, ChangeError<CancelError>>;

    /// Ships a pending order, durably.
    async fn ship(&self, project: &ProjectUid, id: i64, at: UnixMillis) -> Result<Order, ChangeError<ShipError>>;

    /// Places a pending order under the next free id, durably; once per idempotency key.
    async fn create(
        &self,
        project: &ProjectUid,
        order: NewOrder,
        idempotency: Option<Idempotency>,
        at: UnixMillis,
    ) -> Result<Created, CreateError>;

    /// Adds all the orders, durably, or none.
    async fn import(&self, project: &ProjectUid, orders: Vec<Order>) -> Result<u64, ImportError>;

    /// Erases everything of the project, durably, and refuses what is still on its way to it. One that was erased, or
    /// never was, is erased. Others' changes go in between.
    async fn erase(&self, project: &ProjectUid, at: UnixMillis) -> Result<(), StoreError>;

    /// The oldest events that nobody was told of yet, in the order of their numbers. Every change of an order writes one
    /// in its own transaction; an import writes none.
    async fn undelivered(&self, limit: u32) -> Result<Waiting, StoreError>;

    /// Forgets events that were told, and of the others the oldest beyond `keep`. Returns how many of the latter.
    async fn forget(&self, delivered: Vec<i64>, keep: u32) -> Result<u64, StoreError>;

    /// The database underneath, for those who watch it; a store without one is nothing to watch.
    fn database(&self) -> Option<Database> {
        None
    }

    /// Finishes what is in progress and lets go of the files.
    async fn close(&self);
}
