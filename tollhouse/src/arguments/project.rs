//! What a person types to publish projects and change them: `tollhouse project`.

use clap::Subcommand;
use contract::browsers::{Cors, Hsts};
use contract::plan::Plan;
use contract::project::{Access, ProjectId, UpstreamName};

/// `tollhouse project`.
#[derive(Debug, Subcommand)]
pub enum Project {
    /// Create a project and publish it at {ID}.{platform domain}.
    Create {
        /// Its name: the first label of its hostname.
        id: ProjectId,
        /// free, pro, business or enterprise.
        #[arg(long, default_value = "free")]
        plan: Plan,
        /// The backend its requests go to.
        #[arg(long, default_value = "orders")]
        upstream: UpstreamName,
        /// key: an API with keys and quotas. public: a site without.
        #[arg(long, default_value = "key")]
        access: Access,
        /// Requests per minute, for a project with limits of its own.
        #[arg(long, requires = "per_day")]
        per_minute: Option<std::num::NonZeroU32>,
        /// Requests per day, for a project with limits of its own.
        #[arg(long, requires = "per_minute")]
        per_day: Option<std::num::NonZeroU32>,
    },
    /// All projects.
    List,
    /// One project.
    Show {
        /// Its name.
        id: ProjectId,
    },
    /// Change a project; takes effect at once, what was used stays used.
    Set {
        /// Its name.
        id: ProjectId,
        /// The new plan.
        #[arg(long)]
        plan: Option<Plan>,
        /// The new backend.
        #[arg(long)]
        upstream: Option<UpstreamName>,
        /// The new access.
        #[arg(long)]
        access: Option<Access>,
        /// Limits of its own: requests per minute.
        #[arg(long, requires = "per_day")]
        per_minute: Option<std::num::NonZeroU32>,
        /// Limits of its own: requests per day.
        #[arg(long, requires = "per_minute")]
        per_day: Option<std::num::NonZeroU32>,
        /// Back to the limits of the plan.
        #[arg(long, conflicts_with = "per_minute")]
        plan_limits: bool,
        /// Who answers pages of other sites: upstream, open, off, or the origins that may read, separated by commas;
        /// default: as its backend is set.
        #[arg(long, value_name = "upstream|open|off|ORIGIN,…|default")]
        cors: Option<OrDefault<Cors>>,
        /// Who says that its hosts are reached over TLS alone: upstream, or on; default: as its backend is set.
        #[arg(long, value_name = "upstream|on|default")]
        hsts: Option<OrDefault<Hsts>>,
    },
    /// Answer 403 on all its hosts.
    Suspend {
        /// Its name.
        id: ProjectId,
    },
    /// Serve it again.
    Resume {
        /// Its name.
        id: ProjectId,
    },
    /// Remove it: its keys and traffic stop at once. Its data is kept for a while, then erased everywhere.
    Remove {
        /// Its name.
        id: ProjectId,
        /// Erase its data at once, and what is kept of removed projects of this name. It cannot be restored.
        #[arg(long)]
        now: bool,
        /// Do not ask whether that is meant.
        #[arg(long)]
        yes: bool,
    },
    /// Bring a removed project back, with its keys and its data. Its domains are verified anew.
    Restore {
        /// Its name.
        id: ProjectId,
    },
    /// Removed projects that can be restored, and when they are erased.
    Removed,
}

/// A value of a project's own, or what its backend has.
#[derive(Clone, Debug)]
pub enum OrDefault<T> {
    /// What its backend has.
    Default,
    /// Its own.
    Own(T),
}

impl<T: std::str::FromStr> std::str::FromStr for OrDefault<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text == "default" { Ok(Self::Default) } else { text.parse().map(Self::Own) }
    }
}
