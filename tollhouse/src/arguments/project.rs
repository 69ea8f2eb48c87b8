//! Arguments of `tollhouse project`.

use clap::Subcommand;
use contract::browsers::{Cors, Hsts};
use contract::plan::Plan;
use contract::project::{Access, ProjectId, UpstreamName};

/// `tollhouse project`.
#[derive(Debug, Subcommand)]
pub enum Project {
    /// Create a project and publish it at {ID}.{platform domain}.
    Create {
        /// Name of the project, and first label of its hostname.
        id: ProjectId,
        /// Plan: free, pro, business or enterprise.
        #[arg(long, default_value = "free")]
        plan: Plan,
        /// Upstream of its requests.
        #[arg(long, default_value = "orders")]
        upstream: UpstreamName,
        /// key: an API with keys and quotas. public: a site without keys.
        #[arg(long, default_value = "key")]
        access: Access,
        /// Own limit in place of the plan's: requests per minute.
        #[arg(long, requires = "per_day")]
        per_minute: Option<std::num::NonZeroU32>,
        /// Own limit in place of the plan's: requests per day.
        #[arg(long, requires = "per_minute")]
        per_day: Option<std::num::NonZeroU32>,
    },
    /// List projects.
    List,
    /// Show a project.
    Show {
        /// Name of the project.
        id: ProjectId,
    },
    /// Change a project. Takes effect at once; counts so far are kept.
    Set {
        /// Name of the project.
        id: ProjectId,
        /// The new plan.
        #[arg(long)]
        plan: Option<Plan>,
        /// The new upstream.
        #[arg(long)]
        upstream: Option<UpstreamName>,
        /// The new access.
        #[arg(long)]
        access: Option<Access>,
        /// Own limit in place of the plan's: requests per minute.
        #[arg(long, requires = "per_day")]
        per_minute: Option<std::num::NonZeroU32>,
        /// Own limit in place of the plan's: requests per day.
        #[arg(long, requires = "per_minute")]
        per_day: Option<std::num::NonZeroU32>,
        /// Return to the limits of the plan.
        #[arg(long, conflicts_with = "per_minute")]
        plan_limits: bool,
        /// CORS: upstream, open, off, or a list of origins separated by commas;
        /// default: the upstream's setting.
        #[arg(long, value_name = "upstream|open|off|ORIGIN,…|default")]
        cors: Option<OrDefault<Cors>>,
        /// Strict-Transport-Security: upstream or on; default: the upstream's setting.
        #[arg(long, value_name = "upstream|on|default")]
        hsts: Option<OrDefault<Hsts>>,
    },
    /// Suspend a project: all its hosts answer 403.
    Suspend {
        /// Name of the project.
        id: ProjectId,
    },
    /// End the suspension of a project.
    Resume {
        /// Name of the project.
        id: ProjectId,
    },
    /// Remove a project: its keys and traffic stop at once. Its data is kept for a while, then erased everywhere.
    Remove {
        /// Name of the project.
        id: ProjectId,
        /// Erase its data at once, with the data of removed projects of this name. This cannot be undone.
        #[arg(long)]
        now: bool,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Restore a removed project with its keys and data. Its domains are verified again.
    Restore {
        /// Name of the project.
        id: ProjectId,
    },
    /// List removed projects that can be restored, and the time of their erasure.
    Removed,
}

/// A project's own value, or that of its upstream.
#[derive(Clone, Debug)]
pub enum OrDefault<T> {
    /// The upstream's value.
    Default,
    /// The project's own value.
    Own(T),
}

impl<T: std::str::FromStr> std::str::FromStr for OrDefault<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text == "default" { Ok(Self::Default) } else { text.parse().map(Self::Own) }
    }
}
