//! Sites: all the edge needs to serve one hostname.

use serde::{Deserialize, Serialize};

use crate::hostname::Hostname;
use crate::project::{Access, ProjectId, UpstreamName};
use crate::text::words;

words! {
    /// The status of a redirect to the primary domain.
    pub enum RedirectStatus {
        /// 301.
        MovedPermanently = "301",
        /// 302.
        Found = "302",
        /// 307: method and body kept.
        TemporaryRedirect = "307",
        /// 308: method and body kept.
        PermanentRedirect = "308",
    }
}

impl RedirectStatus {
    /// The number.
    pub const fn code(self) -> u16 {
        match self {
            Self::MovedPermanently => 301,
            Self::Found => 302,
            Self::TemporaryRedirect => 307,
            Self::PermanentRedirect => 308,
        }
    }

    /// The status with this number.
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|status| status.code() == code)
    }
}

/// Where a hostname sends its visitors instead of serving them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redirect {
    /// The primary domain. It never redirects itself: configuration that would chain or loop is refused.
    pub to: Hostname,
    /// The status chosen. `None`: 301 for GET and HEAD, 308 for methods that may carry a body.
    pub status: Option<RedirectStatus>,
}

/// What stands behind a hostname.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Serves {
    /// A project: its access, upstream, plan and limits are those of the project's record.
    Project(ProjectId),
    /// The platform itself (`api.`, `dashboard.`): keys of any project are welcome, and each spends its own project's
    /// quota.
    Platform {
        /// The backend.
        upstream: UpstreamName,
        /// Whether requests need a key.
        access: Access,
    },
}

/// All the edge needs to serve one hostname. Only hostnames that may be served have one: a domain that is not yet
/// verified has no site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// The hostname.
    pub hostname: Hostname,
    /// What stands behind it.
    pub serves: Serves,
    /// Set when the hostname is not the primary one and sends its visitors there.
    pub redirect: Option<Redirect>,
}

impl Site {
    /// The project behind the site, unless it is the platform's own.
    pub fn project(&self) -> Option<&ProjectId> {
        match &self.serves {
            Serves::Project(project) => Some(project),
            Serves::Platform { .. } => None,
        }
    }
}
