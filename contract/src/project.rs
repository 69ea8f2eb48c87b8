//! Projects: what tenants publish.
//!
//! A project has a name, which is displayed and can be reused once it is free, and an identity, which is never reused.
//! Data of a project is stored under its identity.

use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::browsers::Browsers;
use crate::plan::{Limits, Plan};
use crate::text::{serde_as_text, words};

/// A project's name on the platform: the first label of `{project}.{platform_domain}`.
///
/// 1 to 63 characters of `a-z 0-9 -`, starting and ending with a letter or digit. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectId(Arc<str>);

/// The name of an upstream in the gateway's configuration; same alphabet as [`ProjectId`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpstreamName(Arc<str>);

/// The text is not a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use 1 to 63 characters of a-z, 0-9 and -, starting and ending with a letter or digit")]
pub struct InvalidLabel;

/// Labels under the platform's domain that no project may take, because the platform uses them.
pub const RESERVED_LABELS: &[&str] = &["api", "dashboard", "www", "admin", "edge", "status", "mail", "autoconfig"];

fn is_label(text: &str) -> bool {
    let edge_ok = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    text.len() <= 63
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && edge_ok(text.as_bytes().first())
        && edge_ok(text.as_bytes().last())
}

macro_rules! label {
    ($name:ident) => {
        impl $name {
            /// The text, as it appears in hostnames, configuration and logs.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidLabel;

            fn from_str(text: &str) -> Result<Self, InvalidLabel> {
                if is_label(text) { Ok(Self(text.into())) } else { Err(InvalidLabel) }
            }
        }

        serde_as_text!($name);
    };
}

label!(ProjectId);
label!(UpstreamName);

/// The identity of a project, independent of its name: orders, events, usage and quotas refer to it.
///
/// `prj_` and 26 characters of `a-z 2-7`: 128 random bits, never reused. A project that is older than identities has
/// its name of that time as its identity; no new project can get a name as its identity, because names contain no `_`.
/// Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectUid(Arc<str>);

/// The text is not an identity of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a project's identity is prj_ followed by 26 characters of a-z and 2-7, or the name of an old project")]
pub struct InvalidProjectUid;

/// 128 bits in base32: 26 characters of 5 bits each.
const UID_CHARACTERS: usize = 26;

impl ProjectUid {
    /// The identity of a new project.
    pub fn from_random(random: [u8; 16]) -> Self {
        const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let bits = u128::from_be_bytes(random);
        let letter = |index: usize| {
            let at = usize::try_from((bits >> (index * 5)) & 31).unwrap_or(0);
            char::from(LETTERS.get(at).copied().unwrap_or(b'a'))
        };
        let text: String = (0..UID_CHARACTERS).map(letter).collect();
        Self(format!("prj_{text}").into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ProjectUid {
    type Err = InvalidProjectUid;

    fn from_str(text: &str) -> Result<Self, InvalidProjectUid> {
        let random = |rest: &str| {
            rest.len() == UID_CHARACTERS && rest.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7'))
        };
        if text.strip_prefix("prj_").is_some_and(random) || is_label(text) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidProjectUid)
        }
    }
}

serde_as_text!(ProjectUid);

words! {
    /// The callers that a project's site accepts.
    pub enum Access {
        /// An API: bearer keys and quotas. The default.
        Key = "key",
        /// A site: no key, any method, WebSocket.
        Public = "public",
    }
}

/// The data of a project that the edge needs to charge and forward its requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Project {
    /// The project's name.
    pub id: ProjectId,
    /// Its identity, for quota and usage.
    pub uid: ProjectUid,
    /// The plan it is on.
    pub plan: Plan,
    /// The effective limits: the plan's, or the project's own.
    pub limits: Limits,
    /// Whether requests need a key.
    pub access: Access,
    /// The upstream that gets its requests.
    pub upstream: UpstreamName,
    /// A suspended project is answered 403 `project_suspended` on all its hosts.
    pub suspended: bool,
    /// Its own rules for browsers; absent ones come from the upstream.
    #[serde(default, skip_serializing_if = "Browsers::is_unsaid")]
    pub browsers: Browsers,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_checked_when_parsed() {
        for good in ["a", "demo-pro", "0", &"x".repeat(63)] {
            assert!(good.parse::<ProjectId>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "ü", &"x".repeat(64)] {
            assert!(bad.parse::<ProjectId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn no_name_is_the_identity_of_a_new_project() {
        let uid = ProjectUid::from_random([0xa5; 16]);
        assert_eq!((uid.as_str().len(), uid.as_str().parse()), (30, Ok(uid.clone())));
        assert!(uid.as_str().parse::<ProjectId>().is_err());
        assert_ne!(uid, ProjectUid::from_random([0xa4; 16]));
        let mut last_bit = [0xa5; 16];
        last_bit[0] ^= 0x80;
        assert_ne!(uid, ProjectUid::from_random(last_bit), "all 128 bits are in it");
        for bad in ["", "prj_", "prj_UPPERCASEUPPERCASEUPPERCA", "prj_a1aaaaaaaaaaaaaaaaaaaaaaaa", "a/b", "prj_abc"] {
            assert!(bad.parse::<ProjectUid>().is_err(), "{bad}");
        }
    }

    #[test]
    fn json_cannot_smuggle_an_unchecked_name() {
        assert!(serde_json::from_str::<ProjectId>("\"Evil/../\"").is_err());
    }
}
