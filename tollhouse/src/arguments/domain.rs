//! `tollhouse domain`, as it is typed.

use clap::Subcommand;
use contract::project::ProjectId;
use contract::site::RedirectStatus;

/// `tollhouse domain`.
#[derive(Debug, Subcommand)]
pub enum Domain {
    /// Attach a domain and say which DNS record to create.
    Add {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
        /// Make it the primary one.
        #[arg(long)]
        primary: bool,
        /// Send its visitors to another domain of the project; `primary` is the primary one, whichever that is.
        #[arg(long, value_name = "DOMAIN", conflicts_with = "primary")]
        redirect_to: Option<String>,
        /// 301, 302, 307 or 308.
        #[arg(long, requires = "redirect_to")]
        status: Option<RedirectStatus>,
    },
    /// What attaching a name would mean: records to create, conflicts. Attaches nothing.
    Check {
        /// The project.
        project: ProjectId,
        /// The name.
        name: String,
    },
    /// All domains of a project.
    List {
        /// The project.
        project: ProjectId,
    },
    /// One domain with its records, checks, problems and certificate.
    Show {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
    },
    /// Look at DNS now.
    Verify {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
    },
    /// Make a domain the primary one.
    Primary {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
    },
    /// Send a domain's visitors to another domain of the project, or stop doing so.
    Redirect {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
        /// Where to; `primary` is the primary domain, whichever that is.
        #[arg(long, value_name = "DOMAIN", default_value = "primary")]
        to: String,
        /// 301, 302, 307 or 308.
        #[arg(long)]
        status: Option<RedirectStatus>,
        /// Serve it again instead.
        #[arg(long, conflicts_with_all = ["status", "to"])]
        off: bool,
    },
    /// Stop serving a domain, at once, on every gateway.
    Remove {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
        /// Remove the domains that redirect to it as well.
        #[arg(long)]
        with_redirects: bool,
    },
    /// What happened to a domain, or to everything in a project, newest first.
    Events {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: Option<String>,
        /// At most so many.
        #[arg(long, default_value_t = 200)]
        limit: usize,
    },
}
