//! `tollhouse webhook`, as it is typed.

use clap::Subcommand;
use contract::project::ProjectId;

/// `tollhouse webhook`.
#[derive(Debug, Subcommand)]
pub enum Webhook {
    /// Tell a receiver what happens. The secret its messages are signed with is shown this once.
    Add {
        /// The project.
        project: ProjectId,
        /// The receiver: an https address.
        url: String,
        /// Events it wants, or prefixes such as `domain.certificate.*`. Repeatable; without it, all.
        #[arg(long = "event", value_name = "EVENT")]
        events: Vec<String>,
        /// What you call it.
        #[arg(long, default_value = "")]
        description: String,
    },
    /// All webhooks of a project.
    List {
        /// The project.
        project: ProjectId,
    },
    /// Send again to a webhook that is switched off: what happens from now on.
    Enable {
        /// The project.
        project: ProjectId,
        /// The webhook's id.
        webhook: String,
    },
    /// Send nothing to a webhook until it is enabled; what waits for it has failed.
    Disable {
        /// The project.
        project: ProjectId,
        /// The webhook's id.
        webhook: String,
    },
    /// Replace the secret. Messages are signed with both for a while.
    Rotate {
        /// The project.
        project: ProjectId,
        /// The webhook's id.
        webhook: String,
        /// For how long the old secret signs as well, in seconds.
        #[arg(long, default_value_t = 86_400)]
        overlap_seconds: u32,
    },
    /// Send nothing more, and forget what waits.
    Remove {
        /// The project.
        project: ProjectId,
        /// The webhook's id.
        webhook: String,
    },
    /// What was sent and what became of it, newest first.
    Deliveries {
        /// The project.
        project: ProjectId,
        /// The webhook's id.
        webhook: String,
        /// Only those that are `waiting`, `delivered` or `failed`.
        #[arg(long)]
        state: Option<String>,
        /// At most so many.
        #[arg(long, default_value_t = 200)]
        limit: usize,
    },
    /// Send a message of the type webhook.test, to try the receiver.
    Test {
        /// The project.
        project: ProjectId,
        /// The webhook's id.
        webhook: String,
    },
    /// Send a message again, as if for the first time.
    Repeat {
        /// The project.
        project: ProjectId,
        /// The webhook's id.
        webhook: String,
        /// The delivery's id, as `deliveries` lists it.
        delivery: i64,
    },
}
