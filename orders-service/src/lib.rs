//! The pet store's orders: list them, cancel a pending one.
//!
//! The gateway forwards each request with a signed identity. In reading order: `api` routes the request, `access`
//! checks the caller and its scope, `api/list_orders`, `api/cancel_order` and `api/get_pet` answer one operation each,
//! [`order`] holds the rules, [`store`] stores the orders (SQLite or PostgreSQL, in `store/sql`), `scan` reads all
//! orders of a project in batches, `json` writes them, `error` lists the refusals.
//!
//! For operators: `internal` serves their listener and `import` reads imports. `control_plane` is the client of the
//! control plane, with three tasks: `outbox_relay` sends the events of orders, `erasure` erases removed projects,
//! `trusted_keys` fetches the trusted keys. [`Orders`] offers the operators' functions to a process that embeds this
//! service.
//!
//! The gateway authenticates callers, counts quotas and terminates customers' TLS. The control plane knows which
//! projects exist: this service returns an empty list for any project without orders, and asks before an import. When
//! the database fails, requests get 503 within seconds, and no acknowledged change is lost.

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

/// Every operation of the API: method, path, and the scope that the key needs.
pub fn operations() -> impl Iterator<Item = (&'static str, &'static str, Option<Scope>)> {
    api::all().map(|operation| (operation.method.as_str(), operation.path, operation.scope))
}

/// The OpenAPI documents of `/v1` and `/v2`, with the file names of their committed copies.
pub fn openapi_documents() -> [(&'static str, String); 2] {
    api::documents()
}
