//! The control plane: projects, plans, API keys, custom domains, certificates, and the change log the edge follows.
//!
//! Three listeners: `http` for the public API behind the gateway, `internal` for gateways and operators, `admin` for
//! health and metrics. Durable state is in one database (`store`, which has all SQL); every fact for the edge leaves as
//! a numbered change in the same transaction (`publish`, `feed`); other replicas are notified (`peers`). Rules are pure
//! (`domain`); `reconcile` checks one domain, decides by them and writes; periodic work is in `worker`; `webhook` has
//! the receivers of events, and `delivery` sends them. `key_rotation` seals stored data with a new secret. `api` has
//! the operations, in one list, and describes them; `pages` carries them out for the dashboard, whose sessions are in
//! `sessions`.
//!
//! Nothing here is on the path of a visitor's request. While this service is down, gateways serve their last state;
//! nothing can be changed, and certificates are renewed so early that an outage of days does no harm.

mod text;
mod limits;
mod plans;
pub mod config;
mod domain;
mod webhook;
mod store;
mod nodes;
mod peers;
mod publish;
mod throttle;
mod metrics;
mod common;
mod identities;
mod gateways;
mod issuer;
mod app;
mod delivery;
mod error;
mod withdrawals;
mod sessions;
mod reconcile;
mod worker;
mod restored;
mod keyring;
mod enrolment;
mod revocations;
mod feed;
mod key_rotation;
mod api;
mod pages;
mod run;

use chassis::openapi::Method;
use contract::key::Scope;
use domains_api::{actor, project};

pub use config::{AcmeSettings, ChallengeKind, Config, ExternalAccount};
pub use domains_api::Operation;
pub use error::catalogue;
pub use issuer::{
    Authorities, CaaIdentity, IssueError, IssueRequest, Issued, Issuer, LocalAuthority, QueuePosition, RenewalAdvice,
    signing,
};
pub use limits::Limits;
pub use plans::{Grant, Plans};
pub use restored::{Counted, Kind, Outcome, Report, finish_restore};
pub use run::{World, start, start_in};
pub use store::newest_schema;
pub use verification::problem::ProblemCode;

/// Every operation of the public API: method, path, and required scope.
pub fn operations() -> impl Iterator<Item = (&'static str, &'static str, Option<Scope>)> {
    api::all().map(|operation| (operation.method.as_str(), operation.path, operation.scope))
}

/// The method of an operation, and its path on the internal listener with these parameters, in order.
pub fn at_operators(operation: Operation, parameters: &[&str]) -> Option<(Method, String)> {
    let operation = api::named(operation)?;
    Some((operation.method, api::at_operators(&operation.path_of(parameters))))
}

/// The interface description as it is served, by the name of its committed copy.
pub fn openapi_documents() -> [(&'static str, String); 1] {
    [(api::FILE, api::printed().to_owned())]
}
