//! The pet store's orders: list them, cancel a pending one.
//!
//! A request comes from the gateway, signed. In reading order: `api` routes it, `access` finds whose orders it is
//! about and whether it may, `api/list_orders`, `api/cancel_order` and `api/get_pet` each answer one operation,
//! [`order`] holds the rules, [`store`] keeps the orders (SQLite or PostgreSQL, in `store/sql`), `scan` reads all of them without
//! holding anything, `wire` writes them, `error` says no. Beside it `internal` serves operators and `import` reads
//! what they bring, `control` is the way to the control plane: `outbox_relay` passes on what happened, `erasure` erases what is
//! gone, `trust` asks whose word is believed; [`Orders`] is the same for a process that runs this service inside itself.
//!
//! Left to others: authentication, quotas and customers' TLS are the gateway's; which projects there are, the control
//! plane's: a project without orders has an empty list, and an import asks first. When the database cannot answer, requests get 503 within seconds and
//! nothing acknowledged is lost.

pub mod order;
mod json;
pub mod store;
mod error;
mod bounds;
mod etag;
mod scan;
mod import;
mod orders;
mod access;
mod deprecation;
mod config;
mod control_plane;
mod trusted_keys;
mod erasure;
mod metrics;
mod observe;
mod outbox_relay;
mod api;
mod internal;
mod server;

use contract::key::Scope;

pub use config::{Config, ENVIRONMENT_PREFIX};
pub use deprecation::{Deprecation, InvalidLinkTarget, LinkTarget};
pub use error::catalogue;
pub use import::{BYTES_MAX, ImportFailure, LINE_BYTES_MAX, ORDERS_MAX};
pub use orders::Orders;
pub use server::{start, start_with};

/// Every operation of the API, as its router has it: method, path, and what the key must be allowed to do.
pub fn operations() -> impl Iterator<Item = (&'static str, &'static str, Option<Scope>)> {
    api::all().map(|operation| (operation.method.as_str(), operation.path, operation.scope))
}

/// The interface descriptions of `/v1` and `/v2` as they are served, by the names of their committed copies.
pub fn openapi_documents() -> [(&'static str, String); 2] {
    api::documents()
}
