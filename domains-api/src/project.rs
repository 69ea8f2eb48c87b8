//! A reference to a project: its identity decides, its name is for display.
//!
//! All stored data refers to the identity, so a new project under a freed name inherits nothing.

use std::fmt;

use contract::project::{ProjectId, ProjectUid};

/// A project, as records and callers refer to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProjectRef {
    /// Its identity, which no other project ever has.
    pub uid: ProjectUid,
    /// Its name, and the label of its host.
    pub name: ProjectId,
}

impl fmt::Display for ProjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl serde::Serialize for ProjectRef {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.name.serialize(serializer)
    }
}

#[cfg(feature = "test-util")]
impl std::str::FromStr for ProjectRef {
    type Err = contract::project::InvalidLabel;

    /// A project with its name as its identity.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let name: ProjectId = name.parse()?;
        let uid = name.as_str().parse().map_err(|_| contract::project::InvalidLabel)?;
        Ok(Self { uid, name })
    }
}
