//! The edge of Tollhouse.
//!
//! Modules in the order of a request's life.

pub mod door;
pub mod rejection;
