//! Stored webhooks: endpoints, and the outbox of deliveries.

mod address;
mod due;
mod outbox;
mod taken;

use chassis::sql::{Connection, On, query, query_as, query_scalar};

use super::rows::{self, Columns, ReadKey, Stored, Table};
use super::{Result, Store, kept, page_of, to_json, with_project};
use crate::project::ProjectRef;
use crate::webhook::{EndpointRecord, Wanted};

pub(crate) use address::send_test;
#[cfg(test)]
pub(super) use due::DUE;
pub(crate) use due::DueDelivery;
pub(crate) use outbox::{
    Delivery, DeliveryState, claim, enqueue, fail_waiting, forget_deliveries, record, renew, repeat,
};
pub(crate) use taken::{EVENTS_PER_WRITE, forget_taken, take};

impl Stored for EndpointRecord {
    const KEY: ReadKey = |row| rows::key(Table::WebhookEndpoints, row.text("id"), row.text("project"));

    fn read(row: &mut Columns<'_>) -> Option<Self> {
        Some(Self {
            id: row.text("id"),
            project: row.project("project", "project_name")?,
            url: row.text("url"),
            description: row.text("description"),
            sealed_secret: row.text("sealed_secret"),
            previous: row.get::<Option<String>>("previous_secret").zip(row.time_if_any("previous_until")),
            failing_since: row.time_if_any("failing_since"),
            delivered_at: row.time_if_any("delivered_at"),
            disabled: row.time_if_any("disabled_at").zip(row.word("disabled_reason")),
            created_at: row.time("created_at"),
            updated_at: row.time("updated_at"),
            // Shown only to callers that may see all its events. Read last: a delivery does without it, but not without
            // the columns above.
            events: row.json("events").unwrap_or_else(|| Wanted::everything(true)),
            unreadable: row.unreadable(),
        })
    }
}

impl Store {
    /// Up to `limit` of a project's endpoints, oldest first, after the time and id in `after`.
    pub(crate) async fn webhooks(
        &self,
        project: &ProjectRef,
        after: &(i64, String),
        limit: i64,
    ) -> Result<Vec<EndpointRecord>> {
        let page = query_as(page_of!("webhook_endpoints")).bind((project.uid.as_str(), after.0, &after.1, limit));
        rows::all(self.reader(), page).await
    }

    /// The endpoint with this id, whosever it is.
    pub(crate) async fn webhook(&self, id: &str) -> Result<Option<EndpointRecord>> {
        let row = query_as(with_project!("webhook_endpoints WHERE id = $1")).bind(id);
        rows::one(self.reader(), row).await
    }
}

/// The project's endpoint with this id.
pub(crate) async fn find_webhook(
    on: impl Into<On<'_>>,
    project: &ProjectRef,
    id: &str,
) -> Result<Option<EndpointRecord>> {
    let row = query_as(with_project!("webhook_endpoints WHERE project = $1 AND id = $2"));
    rows::one(on, row.bind((project.uid.as_str(), id))).await
}

/// How many endpoints the project has.
pub(crate) async fn count_webhooks(connection: &mut Connection, project: &ProjectRef) -> Result<u64> {
    let count = query_scalar("SELECT COUNT(*) FROM webhook_endpoints WHERE project = $1");
    let count: i64 = count.bind(project.uid.as_str()).fetch_one(connection).await?;
    Ok(count.unsigned_abs())
}

/// Writes an endpoint, new or changed.
///
/// # Errors
/// Also when its row could not be read: what is in it would be lost.
pub(crate) async fn save_webhook(connection: &mut Connection, endpoint: &EndpointRecord) -> Result<()> {
    let key = || rows::key(Table::WebhookEndpoints, &endpoint.id, endpoint.project.uid.as_str());
    rows::must_be_whole(endpoint.unreadable, key)?;
    let previous = endpoint.previous.as_ref();
    let values = [
        ("id", (&endpoint.id).into()),
        ("project", endpoint.project.uid.as_str().into()),
        ("url", (&endpoint.url).into()),
        ("description", (&endpoint.description).into()),
        ("events", to_json(&endpoint.events).into()),
        ("sealed_secret", (&endpoint.sealed_secret).into()),
        ("previous_secret", previous.map(|(sealed, _)| sealed.as_str()).into()),
        ("previous_until", previous.map(|(_, until)| until.0).into()),
        ("failing_since", endpoint.failing_since.map(|at| at.0).into()),
        ("delivered_at", endpoint.delivered_at.map(|at| at.0).into()),
        ("disabled_at", endpoint.disabled.map(|(at, _)| at.0).into()),
        ("disabled_reason", endpoint.disabled.map(|(_, reason)| reason.as_str()).into()),
        ("created_at", endpoint.created_at.0.into()),
        ("updated_at", endpoint.updated_at.0.into()),
    ];
    rows::upsert(Table::WebhookEndpoints, &["id"], &["project", "created_at"], values).run(connection).await
}

/// Deletes an endpoint with its deliveries.
pub(crate) async fn delete_webhook(connection: &mut Connection, endpoint: &EndpointRecord) -> Result<()> {
    let id = endpoint.id.as_str();
    connection.unreadable().forget(&rows::key(Table::WebhookEndpoints, id, endpoint.project.uid.as_str()));
    rows::forget_all(connection.unreadable(), Table::WebhookDeliveries, id);
    query("DELETE FROM webhook_endpoints WHERE id = $1").bind(id).execute(&mut *connection).await?;
    for owner in address::counted(id) {
        kept::forget(connection, &owner).await?;
    }
    Ok(())
}
