//! The change stream: how the control plane tells every gateway what it must know.
//!
//! `GET /internal/edge/feed?node=ID&after=REVISION` answers with one JSON document per line
//! (`application/x-ndjson`), for ever. When the log still holds every change after `after`, changes follow at once;
//! otherwise a snapshot comes first, between [`Frame::SnapshotBegin`] and [`Frame::SnapshotEnd`]. A heartbeat comes
//! every second. Revisions of changes rise by exactly one; any gap means: ask again from what you have applied.

use serde::{Deserialize, Serialize};

use crate::certificate::{CertificateBundle, Challenge};
use crate::hostname::Hostname;
use crate::key::{ApiKey, KeyDigest};
use crate::project::{Project, ProjectId};
use crate::site::Site;
use crate::time::UnixMillis;

/// The longest line either side may write, in bytes. A certificate bundle is the largest thing on the stream: 5
/// certificates of 2 KiB and a key.
pub const LINE_BYTES_MAX: usize = 256 * 1024;

/// The monotone number of a change. 0: nothing has happened yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl std::fmt::Display for Revision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// One thing the edge knows about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entity {
    /// A project: plan, limits, access, upstream.
    Project(Project),
    /// A hostname that is served.
    Site(Site),
    /// An API key.
    Key(ApiKey),
    /// A certificate for one hostname.
    Certificate(CertificateBundle),
    /// A proof in progress.
    Challenge(Challenge),
}

/// The name of an [`Entity`]: what a removal says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntityName {
    /// A project.
    Project(ProjectId),
    /// A site, by hostname.
    Site(Hostname),
    /// A key, by digest.
    Key(KeyDigest),
    /// A certificate, by the hostname it is served for.
    Certificate(Hostname),
    /// A challenge, by token.
    Challenge(String),
}

impl Entity {
    /// The entity's name.
    pub fn name(&self) -> EntityName {
        match self {
            Self::Project(project) => EntityName::Project(project.id.clone()),
            Self::Site(site) => EntityName::Site(site.hostname.clone()),
            Self::Key(key) => EntityName::Key(key.digest),
            Self::Certificate(bundle) => EntityName::Certificate(bundle.hostname.clone()),
            Self::Challenge(challenge) => EntityName::Challenge(challenge.token.clone()),
        }
    }
}

/// What a change does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The entity is now exactly this.
    Put(Entity),
    /// The entity is gone.
    Remove(EntityName),
}

/// One row of the change log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its number; the one before it is exactly one less.
    pub revision: Revision,
    /// When it was committed, by the control plane's clock.
    pub at: UnixMillis,
    /// What it does.
    pub effect: Effect,
}

/// One line of the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frame {
    /// Forget everything once the snapshot is complete; `entities` of them follow.
    SnapshotBegin {
        /// How many [`Frame::Entity`] lines follow.
        entities: u64,
    },
    /// One entity of the snapshot.
    Entity(Entity),
    /// The snapshot is complete and describes this revision.
    SnapshotEnd {
        /// The revision the snapshot describes.
        revision: Revision,
    },
    /// The next change.
    Change(Change),
    /// Nothing new; the stream lives, and the newest revision is this.
    Heartbeat {
        /// The newest revision.
        revision: Revision,
        /// The control plane's clock.
        at: UnixMillis,
    },
}

/// What a gateway reports: `POST /internal/edge/nodes`, after every applied batch and every second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeReport {
    /// The node's name, unique per process start.
    pub node: String,
    /// Everything up to here is applied: stored, hot entries dropped, connections of removed names refused.
    pub applied: Revision,
    /// The node's version, for the operator's view.
    pub version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_the_wire() {
        let frames = [
            Frame::SnapshotBegin { entities: 1 },
            Frame::Entity(Entity::Project(Project {
                id: "demo".parse().unwrap(),
                plan: crate::plan::Plan::Pro,
                limits: crate::plan::Plan::Pro.stated_limits(),
                access: crate::project::Access::Key,
                upstream: "orders".parse().unwrap(),
                suspended: false,
            })),
            Frame::SnapshotEnd { revision: Revision(7) },
            Frame::Change(Change {
                revision: Revision(8),
                at: UnixMillis(1),
                effect: Effect::Remove(EntityName::Site("a.example".parse().unwrap())),
            }),
            Frame::Heartbeat { revision: Revision(8), at: UnixMillis(2) },
        ];
        for frame in frames {
            let line = serde_json::to_string(&frame).unwrap();
            assert_eq!(serde_json::from_str::<Frame>(&line).unwrap(), frame, "{line}");
        }
    }

    #[test]
    fn an_unknown_kind_or_a_blank_field_is_an_error_not_a_default() {
        for bad in [
            r#"{"put":{"planet":{}}}"#,
            r#"{"put":{"project":{"id":"a","plan":"pro","limits":null,"access":"key","upstream":"o","suspended":false}}}"#,
            r#"{"put":{"project":{"id":"","plan":"pro","limits":{"per_minute":1,"per_day":1},"access":"key","upstream":"o","suspended":false}}}"#,
        ] {
            assert!(serde_json::from_str::<Effect>(bad).is_err(), "{bad}");
        }
    }
}
