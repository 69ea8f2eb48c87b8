//! The API of domains-service as callers in the same process see it: who calls ([`actor`]), in which project
//! ([`project`]), and what operations take and answer ([`types`]).
//!
//! Data only. Operations, their handlers and their refusals are in domains-service; the pages of the dashboard call them
//! with these types.

pub mod moment;
pub mod project;
pub mod actor;
#[expect(
    missing_docs,
    reason = "a member without a sentence here says all with its name, in the interface description too"
)]
pub mod types;
