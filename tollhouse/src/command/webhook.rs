//! `tollhouse webhook`.

use clap::Subcommand;
use contract::project::ProjectId;
use domains_service::Operation;
use serde_json::{Value, json};

use super::all_pages;
use crate::arguments::Common;
use crate::client::Client;
use crate::output::{answer, table, word};
use chassis::percent::segment;

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

pub(super) async fn run(common: &Common, client: &Client, action: Webhook) -> anyhow::Result<()> {
    match action {
        Webhook::Add { project, url, events, description } => {
            let events = Some(events).filter(|events| !events.is_empty());
            let body = json!({ "url": url, "description": description, "events": events });
            let webhook = client.send(Operation::CreateWebhook, &[project.as_str()], &body).await?;
            answer(common, &webhook, show_once);
        }
        Webhook::List { project } => {
            let rows =
                all_pages(client, Operation::ListWebhooks, &[project.as_str()], "", "webhooks", usize::MAX).await?;
            let columns = [
                ("WEBHOOK", "/id"),
                ("URL", "/url"),
                ("EVENTS", "/events"),
                ("ENABLED", "/enabled"),
                ("BECAUSE", "/disabled_reason"),
                ("FAILING SINCE", "/failing_since"),
                ("LAST DELIVERY", "/last_delivered_at"),
                ("DESCRIPTION", "/description"),
            ];
            answer(common, &rows, |rows| table(rows, &columns));
        }
        Webhook::Enable { project, webhook } => switch(common, client, &project, &webhook, true).await?,
        Webhook::Disable { project, webhook } => switch(common, client, &project, &webhook, false).await?,
        Webhook::Rotate { project, webhook, overlap_seconds } => {
            let body = json!({ "overlap_seconds": overlap_seconds });
            let rotated = client.send(Operation::RotateWebhookSecret, &[project.as_str(), &webhook], &body).await?;
            answer(common, &rotated, show_once);
        }
        Webhook::Remove { project, webhook } => {
            client.call(Operation::RemoveWebhook, &[project.as_str(), &webhook], "").await?;
            answer(common, &json!({ "id": webhook, "removed": true }), |_| format!("{webhook} is removed"));
        }
        Webhook::Deliveries { project, webhook, state, limit } => {
            let state = state.map(|state| format!("&state={}", segment(&state))).unwrap_or_default();
            let query = format!("limit={}{state}", limit.clamp(1, 200));
            let webhook = [project.as_str(), &webhook];
            let rows =
                all_pages(client, Operation::ListWebhookDeliveries, &webhook, &query, "deliveries", limit).await?;
            let columns = [
                ("DELIVERY", "/id"),
                ("EVENT", "/type"),
                ("STATE", "/state"),
                ("ATTEMPTS", "/attempts"),
                ("LAST", "/last_result"),
                ("STATUS", "/last_status"),
                ("AT", "/last_attempt_at"),
                ("NEXT", "/next_attempt_at"),
                ("ERROR", "/last_error"),
            ];
            answer(common, &rows, |rows| table(rows, &columns));
        }
        Webhook::Test { project, webhook } => {
            let sent = client.call(Operation::TestWebhook, &[project.as_str(), &webhook], "").await?;
            answer(common, &sent, |sent| {
                let id = word(sent.get("message_id").unwrap_or(&Value::Null));
                format!("sending {id}; see its result with `tollhouse webhook deliveries {project} {webhook}`")
            });
        }
        Webhook::Repeat { project, webhook, delivery } => {
            let parameters = [project.as_str(), &webhook, &delivery.to_string()];
            let repeated = client.call(Operation::RepeatWebhookDelivery, &parameters, "").await?;
            answer(common, &repeated, |repeated| {
                format!("{} is sent again", word(repeated.get("message_id").unwrap_or(&Value::Null)))
            });
        }
    }
    Ok(())
}

async fn switch(
    common: &Common,
    client: &Client,
    project: &ProjectId,
    webhook: &str,
    enabled: bool,
) -> anyhow::Result<()> {
    let body = json!({ "enabled": enabled });
    let switched = client.send(Operation::ChangeWebhook, &[project.as_str(), webhook], &body).await?;
    answer(common, &switched, |_| {
        let what = if enabled {
            "is enabled and receives events from now on"
        } else {
            "is disabled and receives no events until it is enabled"
        };
        format!("{webhook} {what}")
    });
    Ok(())
}

fn show_once(webhook: &Value) -> String {
    let field = |name: &str| word(webhook.get(name).unwrap_or(&Value::Null));
    format!("{}\n\nThis is the secret of {}. It is shown only once: save it now.", field("secret"), field("id"))
}
