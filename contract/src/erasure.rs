//! Permanently deleted projects: the control plane tells the services that keep their data.
//!
//! `GET /internal/erasures` answers with the pending [`Erasures`], the oldest first. A service erases them and confirms
//! with a `POST` of the same list. Unconfirmed erasures are listed again, so that the message survives an outage of
//! either side; erasing twice is harmless. An erasure ends when every registered service has confirmed it.

use serde::{Deserialize, Serialize};

use crate::project::ProjectUid;

/// The path on the control plane's internal listener.
pub const ERASURES_PATH: &str = "/internal/erasures";

/// The most projects in one answer.
pub const ERASURES_MAX: usize = 100;

/// Projects to erase, or erased ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erasures {
    /// Their identities, at most [`ERASURES_MAX`].
    pub projects: Vec<ProjectUid>,
}
