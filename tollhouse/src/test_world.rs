//! The test world, which is no part of the product: the crate `dev-world` where this program is built with the feature
//! `test-world`, and elsewhere words that say how to get it.

#[cfg(not(feature = "test-world"))]
mod absent;

#[cfg(not(feature = "test-world"))]
pub use absent::{AuthorityMode, Dns};
#[cfg(not(feature = "test-world"))]
pub(crate) use absent::{ROOT, TestWorld, carry_out};
#[cfg(feature = "test-world")]
pub use dev_world::{AuthorityMode, records::Dns};
#[cfg(feature = "test-world")]
pub(crate) use dev_world::{ROOT, TestWorld, records::carry_out};
