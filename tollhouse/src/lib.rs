//! The whole platform in one process, and the operator's command line.
//!
//! [`up`] starts control plane, orders and edge with everything they need under one directory. [`command`] is the
//! command line: it talks to a running platform through its internal listeners, with the secret of that directory. No
//! other crate of the workspace uses all parts, and this crate contains no rules of the platform.

pub mod test_world;
pub mod directory;
pub mod arguments;
pub mod client;
pub mod output;
pub mod up;
pub mod command;
