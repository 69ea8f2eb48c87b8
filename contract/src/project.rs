//! Projects: the tenants' published things.

use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::plan::{Limits, Plan};
use crate::text::{serde_as_text, words};

/// A project's name on the platform: the first label of `{project}.{platform_domain}`.
///
/// 1 to 63 characters of `a-z 0-9 -`, starting and ending with a letter or digit. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProjectId(Arc<str>);

/// The name of a backend in the gateway's configuration; same alphabet as [`ProjectId`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpstreamName(Arc<str>);

/// Text that is not a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use 1 to 63 characters of a-z, 0-9 and -, starting and ending with a letter or digit")]
pub struct NotALabel;

/// Labels under the platform's domain that no project may take: the platform speaks there.
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
            type Err = NotALabel;

            fn from_str(text: &str) -> Result<Self, NotALabel> {
                if is_label(text) { Ok(Self(text.into())) } else { Err(NotALabel) }
            }
        }

        serde_as_text!($name);
    };
}

label!(ProjectId);
label!(UpstreamName);

words! {
    /// Who may send requests to a project's site.
    pub enum Access {
        /// An API: bearer keys and quotas. The default.
        Key = "key",
        /// A site: no key, any method, WebSocket.
        Public = "public",
    }
}

/// What the edge must know of a project to charge and forward for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Project {
    /// The project's name.
    pub id: ProjectId,
    /// The plan it is on.
    pub plan: Plan,
    /// The limits in force: the plan's, or the project's own.
    pub limits: Limits,
    /// Whether requests need a key.
    pub access: Access,
    /// The backend its requests go to.
    pub upstream: UpstreamName,
    /// A suspended project is answered 403 `project_suspended` on all its hosts.
    pub suspended: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_checked_at_the_door() {
        for good in ["a", "demo-pro", "0", &"x".repeat(63)] {
            assert!(good.parse::<ProjectId>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", "ü", &"x".repeat(64)] {
            assert!(bad.parse::<ProjectId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn json_cannot_smuggle_an_unchecked_name() {
        assert!(serde_json::from_str::<ProjectId>("\"Evil/../\"").is_err());
    }
}
