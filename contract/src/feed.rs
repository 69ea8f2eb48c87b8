//! The change stream from the control plane to every gateway.
//!
//! `GET /internal/edge/feed?node=ID&after=REVISION&mark=MARK` answers with one JSON document per line
//! (`application/x-ndjson`), without end. If the log still holds every change after `after`, changes follow at once;
//! otherwise a snapshot comes first, between [`Frame::SnapshotBegin`] and [`Frame::SnapshotEnd`]. A heartbeat comes
//! every second. Revisions of changes rise by exactly one; after a gap, ask again from the last applied revision.
//!
//! Every revision has a random [`Mark`]. A follower keeps the mark of its last revision and sends both. A database that
//! was restored to an earlier state reuses the numbers for other changes, with other marks. So the control plane
//! refuses a [`Position`] that its database does not have: status 409, code [`HISTORY`], with its own position in
//! `details`. `after=0` requests a snapshot whatever the database holds; `whole=1` a snapshot of a database that has
//! the position.

mod check;
mod report;

use std::num::NonZeroU32;

pub use check::InvalidEntity;
pub use report::{NodeReport, UNSERVED_MAX};
use serde::{Deserialize, Serialize};

use crate::certificate::{CertificateBundle, Challenge};
use crate::hostname::Hostname;
use crate::key::{ApiKey, KeyDigest};
use crate::project::{Project, ProjectId};
use crate::site::Site;
use crate::time::UnixMillis;

/// The longest line either side may write, in bytes. A certificate bundle is the largest entity: 5 certificates of 2
/// KiB and a key.
pub const LINE_BYTES_MAX: usize = 256 * 1024;

/// The number of a change, which only grows. 0: no change yet.
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

/// The code of the refusal for a follower with a [`Position`] that the control plane's database does not have.
pub const HISTORY: &str = "history";

/// 64 random bits, created with a revision and stored with it. Written as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mark(pub u64);

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The text is not a [`Mark`].
#[derive(Debug, thiserror::Error)]
#[error("a mark has 16 hexadecimal digits in lower case")]
pub struct InvalidMark;

impl std::str::FromStr for Mark {
    type Err = InvalidMark;

    fn from_str(text: &str) -> Result<Self, InvalidMark> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 16 || !text.bytes().all(is_digit) {
            return Err(InvalidMark);
        }
        u64::from_str_radix(text, 16).map(Self).map_err(|_| InvalidMark)
    }
}

impl TryFrom<String> for Mark {
    type Error = InvalidMark;

    fn try_from(text: String) -> Result<Self, InvalidMark> {
        text.parse()
    }
}

impl From<Mark> for String {
    fn from(mark: Mark) -> Self {
        mark.to_string()
    }
}

/// A position in the history of one database. Two databases that share a position are equal up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Position {
    /// The number of the change.
    pub revision: Revision,
    /// The mark of that revision.
    pub mark: Mark,
}

/// A record that the edge needs.
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
    /// A pending proof.
    Challenge(Challenge),
}

/// The name of an [`Entity`], for a removal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntityName {
    /// A project.
    Project(ProjectId),
    /// A site, by hostname.
    Site(Hostname),
    /// A key, by digest.
    Key(KeyDigest),
    /// A certificate, by its hostname.
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

/// The effect of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The entity is now exactly this.
    Put(Entity),
    /// The entity is removed.
    Remove(EntityName),
}

/// One row of the change log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its number; the previous change has exactly one less.
    pub revision: Revision,
    /// Distinguishes it from a change of another history with the same number.
    pub mark: Mark,
    /// When it was committed, by the control plane's clock.
    pub at: UnixMillis,
    /// Its effect.
    pub effect: Effect,
}

impl Change {
    /// The follower's position after it has applied the change.
    pub fn position(&self) -> Position {
        Position { revision: self.revision, mark: self.mark }
    }
}

/// One line of the stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frame {
    /// Forget everything once the snapshot is complete.
    SnapshotBegin {
        /// How many [`Frame::Entity`] lines follow.
        entities: u64,
    },
    /// One entity of the snapshot.
    Entity(Entity),
    /// The snapshot is complete.
    SnapshotEnd {
        /// The revision the snapshot describes.
        revision: Revision,
        /// The mark of that revision.
        mark: Mark,
    },
    /// The next change.
    Change(Change),
    /// The gateways' keys, sealed ([`crate::keyring::Keyring`]): at the beginning and after each change, for gateways
    /// that request them with `keyring=1`.
    Keyring {
        /// The sealed JSON.
        sealed: String,
    },
    /// No new change; the stream is alive.
    Heartbeat {
        /// The newest revision.
        revision: Revision,
        /// The control plane's clock.
        at: UnixMillis,
        /// The follower's place among the gateways; `None` from a control plane that does not send it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        among: Option<AmongGateways>,
    },
}

/// A gateway's place among the processes that share the limits while the quota store is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AmongGateways {
    /// The processes, including this one.
    pub gateways: NonZeroU32,
    /// How many of their names come before this one's.
    pub before: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::SealedKey;
    use crate::key::{Environment, Scope};
    use crate::plan::Plan;
    use crate::project::Access;
    use crate::site::{Redirect, RedirectStatus, Serves};
    use crate::time::UnixSeconds;

    /// A line of the stream and its meaning.
    fn means(line: &str, frame: &Frame) {
        assert_eq!(serde_json::to_string(frame).unwrap(), line);
        assert_eq!(serde_json::from_str::<Frame>(line).unwrap(), *frame, "{line}");
    }

    // Gateways and control planes of different versions meet while a platform is updated, and a replica outlives both.
    #[test]
    fn frames_are_written_as_other_versions_read_them() {
        means(r#"{"snapshot_begin":{"entities":1}}"#, &Frame::SnapshotBegin { entities: 1 });
        means(
            r#"{"snapshot_end":{"revision":7,"mark":"00000000000000ff"}}"#,
            &Frame::SnapshotEnd { revision: Revision(7), mark: Mark(255) },
        );
        let heartbeat = |among| Frame::Heartbeat { revision: Revision(8), at: UnixMillis(2), among };
        means(r#"{"heartbeat":{"revision":8,"at":2}}"#, &heartbeat(None));
        let among = AmongGateways { gateways: NonZeroU32::MIN, before: 0 };
        means(r#"{"heartbeat":{"revision":8,"at":2,"among":{"gateways":1,"before":0}}}"#, &heartbeat(Some(among)));
    }

    #[test]
    fn every_entity_is_written_and_named_as_other_versions_read_it() {
        let project = Project {
            id: "demo".parse().unwrap(),
            uid: "prj_aaaaaaaaaaaaaaaaaaaaaaaaaa".parse().unwrap(),
            plan: Plan::Pro,
            limits: Plan::Pro.stated_limits(),
            access: Access::Key,
            upstream: "orders".parse().unwrap(),
            suspended: false,
            browsers: crate::browsers::Browsers::default(),
        };
        let redirect =
            Redirect { to: "www.a.example".parse().unwrap(), status: Some(RedirectStatus::PermanentRedirect) };
        let hostname: Hostname = "a.example".parse().unwrap();
        let site = |serves, redirect| Entity::Site(Site { hostname: hostname.clone(), serves, redirect });
        let platform = Serves::Platform { upstream: "orders".parse().unwrap(), access: Access::Public };
        let digest = KeyDigest([255; 32]);
        let key = ApiKey {
            digest,
            id: "key_abcdefghij234567".parse().unwrap(),
            project: "demo".parse().unwrap(),
            project_uid: "prj_aaaaaaaaaaaaaaaaaaaaaaaaaa".parse().unwrap(),
            environment: Environment::Test,
            scopes: [Scope::OrdersRead].into_iter().collect(),
            expires_at: None,
        };
        let bundle = CertificateBundle {
            hostname: hostname.clone(),
            chain_pem: "PEM\n".to_owned(),
            key: SealedKey("sealed".to_owned()),
            not_before: UnixSeconds(1),
            not_after: UnixSeconds(2),
        };
        let challenge = Challenge {
            hostname: hostname.clone(),
            token: "t-_1".to_owned(),
            key_authorization: "t-_1.thumb".to_owned(),
        };
        for (entity, written, name) in [
            (
                Entity::Project(project),
                r#"{"project":{"id":"demo","uid":"prj_aaaaaaaaaaaaaaaaaaaaaaaaaa","plan":"pro","limits":{"per_minute":300,"per_day":10000},"access":"key","upstream":"orders","suspended":false}}"#,
                r#"{"project":"demo"}"#,
            ),
            (
                site(Serves::Project("demo".parse().unwrap()), Some(redirect)),
                r#"{"site":{"hostname":"a.example","serves":{"project":"demo"},"redirect":{"to":"www.a.example","status":"308"}}}"#,
                r#"{"site":"a.example"}"#,
            ),
            (
                site(platform, None),
                r#"{"site":{"hostname":"a.example","serves":{"platform":{"upstream":"orders","access":"public"}},"redirect":null}}"#,
                r#"{"site":"a.example"}"#,
            ),
            (
                Entity::Key(key),
                r#"{"key":{"digest":"__________________________________________8","id":"key_abcdefghij234567","project":"demo","project_uid":"prj_aaaaaaaaaaaaaaaaaaaaaaaaaa","environment":"test","scopes":["orders:read"],"expires_at":null}}"#,
                r#"{"key":"__________________________________________8"}"#,
            ),
            (
                Entity::Certificate(bundle),
                r#"{"certificate":{"hostname":"a.example","chain_pem":"PEM\n","key":"sealed","not_before":1,"not_after":2}}"#,
                r#"{"certificate":"a.example"}"#,
            ),
            (
                Entity::Challenge(challenge),
                r#"{"challenge":{"hostname":"a.example","token":"t-_1","key_authorization":"t-_1.thumb"}}"#,
                r#"{"challenge":"t-_1"}"#,
            ),
        ] {
            means(&format!(r#"{{"entity":{written}}}"#), &Frame::Entity(entity.clone()));
            let change =
                |effect| Frame::Change(Change { revision: Revision(8), mark: Mark(9), at: UnixMillis(1), effect });
            let removed = change(Effect::Remove(entity.name()));
            means(
                &format!(
                    r#"{{"change":{{"revision":8,"mark":"0000000000000009","at":1,"effect":{{"remove":{name}}}}}}}"#
                ),
                &removed,
            );
            let put = change(Effect::Put(entity));
            means(
                &format!(
                    r#"{{"change":{{"revision":8,"mark":"0000000000000009","at":1,"effect":{{"put":{written}}}}}}}"#
                ),
                &put,
            );
        }
    }

    #[test]
    fn a_mark_has_one_spelling() {
        for mark in [Mark(0), Mark(1), Mark(u64::MAX)] {
            assert_eq!(mark.to_string().parse::<Mark>().unwrap(), mark);
        }
        for bad in ["", "1", "+00000000000000f", "00000000000000FF", "00000000000000ff0"] {
            assert!(bad.parse::<Mark>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_unknown_kind_or_a_blank_field_is_an_error_not_a_default() {
        for bad in [
            r#"{"put":{"planet":{}}}"#,
            r#"{"put":{"project":{"id":"a","uid":"prj_aaaaaaaaaaaaaaaaaaaaaaaaaa","plan":"pro","limits":null,"access":"key","upstream":"o","suspended":false}}}"#,
            r#"{"put":{"project":{"id":"","uid":"prj_aaaaaaaaaaaaaaaaaaaaaaaaaa","plan":"pro","limits":{"per_minute":1,"per_day":1},"access":"key","upstream":"o","suspended":false}}}"#,
        ] {
            assert!(serde_json::from_str::<Effect>(bad).is_err(), "{bad}");
        }
    }
}
