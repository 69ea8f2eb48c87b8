//! Projects that are gone for good: the control plane's word to the services that keep data of projects.
//!
//! `GET /internal/erasures` answers with the [`Erasures`] that wait, the oldest first; a service erases them and says so
//! with `POST` of the same. Until then it is told again, so that the message survives either side being down, and
//! erasing twice is erased. An erasure ends when every service on record has said so.

use serde::{Deserialize, Serialize};

use crate::project::ProjectUid;

/// The path of the control plane's internal listener.
pub const ERASURES_PATH: &str = "/internal/erasures";

/// Projects told at once.
pub const ERASURES_MAX: usize = 100;

/// Projects to erase, or erased.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erasures {
    /// Their identities, at most [`ERASURES_MAX`].
    pub projects: Vec<ProjectUid>,
}
