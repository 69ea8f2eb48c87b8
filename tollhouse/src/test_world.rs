//! The test world for trying out custom domains, not part of the product: the crate `dev-world` in a build with the
//! feature `test-world`; otherwise an error that names that build.

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
