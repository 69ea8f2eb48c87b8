//! Arguments of `tollhouse webhook`.

use clap::Subcommand;
use contract::project::ProjectId;

/// `tollhouse webhook`.
#[derive(Debug, Subcommand)]
pub enum Webhook {
    /// Add a webhook and print its signing secret once.
    Add {
        /// The project.
        project: ProjectId,
        /// URL of the receiver, with https.
        url: String,
        /// Event or prefix such as `domain.certificate.*`. Repeatable. Default: all events.
        #[arg(long = "event", value_name = "EVENT")]
        events: Vec<String>,
        /// Description in lists.
        #[arg(long, default_value = "")]
        description: String,
    },
    /// List the webhooks of a project.
    List {
        /// The project.
        project: ProjectId,
    },
    /// Enable a disabled webhook; it receives events from now on.
    Enable {
        /// The project.
        project: ProjectId,
        /// The webhook's id.
        webhook: String,
    },
    /// Disable a webhook; its waiting deliveries count as failed.
    Disable {
        /// The project.
        project: ProjectId,
        /// The webhook's id.
        webhook: String,
    },
    /// Replace the secret. For a while messages are signed with both secrets.
    Rotate {
        /// The project.
        project: ProjectId,
        /// The webhook's id.
        webhook: String,
        /// Seconds for which messages are signed with the old secret as well.
        #[arg(long, default_value_t = 86_400)]
        overlap_seconds: u32,
    },
    /// Remove a webhook and its waiting deliveries.
    Remove {
        /// The project.
        project: ProjectId,
        /// The webhook's id.
        webhook: String,
    },
    /// List deliveries and their results, newest first.
    Deliveries {
        /// The project.
        project: ProjectId,
        /// The webhook's id.
        webhook: String,
        /// Only deliveries in this state: waiting, delivered or failed.
        #[arg(long)]
        state: Option<String>,
        /// Maximum number of deliveries.
        #[arg(long, default_value_t = 200)]
        limit: usize,
    },
    /// Send a test message of the type webhook.test.
    Test {
        /// The project.
        project: ProjectId,
        /// The webhook's id.
        webhook: String,
    },
    /// Send a delivery again with new attempts.
    Repeat {
        /// The project.
        project: ProjectId,
        /// The webhook's id.
        webhook: String,
        /// Id of the delivery, from `deliveries`.
        delivery: i64,
    },
}
