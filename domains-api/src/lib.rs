//! The API of domains-service as its callers see it: who calls ([`actor`]), in which project ([`project`]), which
//! [`Operation`], and what it takes and answers ([`types`]).
//!
//! Data only. Operations with their handlers and refusals are in domains-service. The dashboard and the command line
//! call them by these names and types.

mod operation;
pub mod moment;
pub mod project;
pub mod actor;
#[expect(
    missing_docs,
    reason = "the name of a member without a description is enough, in the interface description too"
)]
pub mod types;

pub use operation::Operation;
