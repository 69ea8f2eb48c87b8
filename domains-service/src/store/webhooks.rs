//! Stored webhooks: endpoints, and the outbox of deliveries.

mod address;
mod due;
mod outbox;
mod taken;

use chassis::sql::{Connection, Pool, RowKey, query, query_as, query_scalar};
use contract::time::UnixMillis;

use super::rows::{self, Columns, Stored, Table};
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

chassis::record! {
    struct Row {
        id: String,
        project: String,
        project_name: String,
        url: String,
        description: String,
        events: String,
        sealed_secret: String,
        previous_secret: Option<String>,
        previous_until: Option<i64>,
        failing_since: Option<i64>,
        delivered_at: Option<i64>,
        disabled_at: Option<i64>,
        disabled_reason: Option<String>,
        created_at: i64,
        updated_at: i64,
    }
}

impl Stored for Row {
    type Value = EndpointRecord;

    fn key(&self) -> RowKey {
        rows::key(Table::WebhookEndpoints, &self.id, &self.project)
    }

    fn read(self, columns: &mut Columns) -> Option<EndpointRecord> {
        let project = columns.project(&self.project, &self.project_name);
        let reason = self.disabled_reason.as_deref().and_then(|reason| columns.word("disabled_reason", reason));
        // Shown only to callers that may see all its events.
        let events = columns.json("events", &self.events).unwrap_or_else(|| Wanted::everything(true));
        Some(EndpointRecord {
            id: self.id,
            project: project?,
            url: self.url,
            description: self.description,
            events,
            sealed_secret: self.sealed_secret,
            previous: self.previous_secret.zip(self.previous_until.map(UnixMillis)),
            failing_since: self.failing_since.map(UnixMillis),
            delivered_at: self.delivered_at.map(UnixMillis),
            disabled: self.disabled_at.map(UnixMillis).zip(reason),
            created_at: UnixMillis(self.created_at),
            updated_at: UnixMillis(self.updated_at),
            unreadable: columns.unreadable(),
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
        rows::all::<Row>(self.reader(), page).await
    }

    /// The project's endpoint with this id.
    pub(crate) async fn find_webhook(&self, project: &ProjectRef, id: &str) -> Result<Option<EndpointRecord>> {
        find_in(self.reader(), project, id).await
    }

    /// The endpoint with this id, whosever it is.
    pub(crate) async fn webhook(&self, id: &str) -> Result<Option<EndpointRecord>> {
        let row = query_as(with_project!("webhook_endpoints WHERE id = $1")).bind(id);
        rows::one::<Row>(self.reader(), row).await
    }
}

async fn find_in(pool: &Pool, project: &ProjectRef, id: &str) -> Result<Option<EndpointRecord>> {
    find_webhook(&mut pool.acquire().await?, project, id).await
}

/// The project's endpoint with this id, within a transaction.
pub(crate) async fn find_webhook(
    connection: &mut Connection,
    project: &ProjectRef,
    id: &str,
) -> Result<Option<EndpointRecord>> {
    let row =
        query_as(with_project!("webhook_endpoints WHERE project = $1 AND id = $2")).bind((project.uid.as_str(), id));
    rows::one::<Row>(connection, row).await
}

/// How many endpoints the project has.
pub(crate) async fn count_webhooks(connection: &mut Connection, project: &ProjectRef) -> Result<u64> {
    let count: i64 = query_scalar("SELECT COUNT(*) FROM webhook_endpoints WHERE project = $1")
        .bind(project.uid.as_str())
        .fetch_one(connection)
        .await?;
    Ok(count.unsigned_abs())
}

/// Writes an endpoint, new or changed.
///
/// # Errors
/// Also when its row could not be read: what is in it would be lost.
pub(crate) async fn save_webhook(connection: &mut Connection, endpoint: &EndpointRecord) -> Result<()> {
    if let Some(column) = endpoint.unreadable {
        let key = rows::key(Table::WebhookEndpoints, &endpoint.id, endpoint.project.uid.as_str());
        return Err(rows::unreadable(&key, column));
    }
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
