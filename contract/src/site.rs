//! Sites: the data the edge needs to serve one hostname.

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

/// The redirect of a hostname that is not served itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redirect {
    /// The primary domain. It never redirects itself: configuration with a chain or loop is refused.
    pub to: Hostname,
    /// The chosen status. `None`: 301 for GET and HEAD, 308 for methods that may have a body.
    pub status: Option<RedirectStatus>,
}

/// A hostname's purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Serves {
    /// A project; the project's record has its access, upstream, plan and limits.
    Project(ProjectId),
    /// The platform itself (`api.`, `dashboard.`): keys of any project are accepted, and each uses its own project's
    /// quota.
    Platform {
        /// The upstream.
        upstream: UpstreamName,
        /// Whether requests need a key.
        access: Access,
    },
}

/// The data the edge needs to serve one hostname. Only hostnames that may be served have one: an unverified domain has
/// no site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// The hostname.
    pub hostname: Hostname,
    /// Its purpose.
    pub serves: Serves,
    /// Set if the hostname is not the primary one and redirects its visitors to it.
    pub redirect: Option<Redirect>,
}

impl Site {
    /// The project of the site; `None` for the platform's own.
    pub fn project(&self) -> Option<&ProjectId> {
        match &self.serves {
            Serves::Project(project) => Some(project),
            Serves::Platform { .. } => None,
        }
    }
}
