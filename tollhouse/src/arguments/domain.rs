//! Arguments of `tollhouse domain`.

use clap::Subcommand;
use contract::project::ProjectId;
use contract::site::RedirectStatus;

/// `tollhouse domain`.
#[derive(Debug, Subcommand)]
pub enum Domain {
    /// Attach a domain and print the DNS records to create.
    Add {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
        /// Make it the primary domain.
        #[arg(long)]
        primary: bool,
        /// Redirect visitors to another domain of the project; `primary` means the current primary domain.
        #[arg(long, value_name = "DOMAIN", conflicts_with = "primary")]
        redirect_to: Option<String>,
        /// Status of the redirect: 301, 302, 307 or 308.
        #[arg(long, requires = "redirect_to")]
        status: Option<RedirectStatus>,
    },
    /// Print the records to create and the conflicts of a domain, without attaching it.
    Check {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
    },
    /// List the domains of a project.
    List {
        /// The project.
        project: ProjectId,
    },
    /// Show a domain with its records, checks, problems and certificate.
    Show {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
    },
    /// Check DNS now.
    Verify {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
    },
    /// Set the primary domain.
    Primary {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
    },
    /// Redirect a domain to another domain of the project, or end the redirect.
    Redirect {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
        /// Target; `primary` means the current primary domain.
        #[arg(long, value_name = "DOMAIN", default_value = "primary")]
        to: String,
        /// Status of the redirect: 301, 302, 307 or 308.
        #[arg(long)]
        status: Option<RedirectStatus>,
        /// End the redirect.
        #[arg(long, conflicts_with_all = ["status", "to"])]
        off: bool,
    },
    /// Remove a domain; every gateway stops serving it at once.
    Remove {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: String,
        /// Also remove the domains that redirect to it.
        #[arg(long)]
        with_redirects: bool,
    },
    /// List events of a domain or of a whole project, newest first.
    Events {
        /// The project.
        project: ProjectId,
        /// The domain.
        name: Option<String>,
        /// Maximum number of events.
        #[arg(long, default_value_t = 200)]
        limit: usize,
    },
}
