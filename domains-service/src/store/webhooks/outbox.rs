//! The outbox: waiting deliveries, and the results of the others.

use chassis::sql::{Connection, Found, query, query_as};
use chassis::webhook::{Attempt, AttemptResult};
use contract::hostname::Hostname;
use contract::time::UnixMillis;
pub(crate) use domains_api::types::DeliveryState;

use super::super::rows::{self, Columns, ReadKey, Stored, StoredRow, Table};
use super::super::{Result, Store, Write, kept};
use super::address::{Outgoing, counted, deliver_to, who_wants};
use crate::actor::Actor;
use crate::project::ProjectRef;
use crate::webhook::{DisabledReason, EVENTS, compose};

chassis::record! {
    /// One event on its way to one endpoint.
    #[derive(Clone, Debug)]
    pub(crate) struct Delivery {
        pub(crate) id: i64,
        pub(crate) endpoint: String,
        /// The same in every attempt.
        pub(crate) message: String,
        pub(crate) kind: String,
        pub(crate) body: String,
        pub(crate) state: String,
        pub(crate) attempts: i64,
        pub(crate) due_at: Option<i64>,
        pub(crate) last_result: Option<String>,
        pub(crate) last_status: Option<i64>,
        pub(crate) last_error: Option<String>,
        pub(crate) last_at: Option<i64>,
        pub(crate) created_at: i64,
    }
}

impl Stored for Delivery {
    const KEY: ReadKey =
        |row| rows::key(Table::WebhookDeliveries, row.get::<i64>("id").to_string(), row.text("endpoint"));

    fn read(row: &mut Columns<'_>) -> Option<Self> {
        // A delivery with a bad column is listed as it is, and not sent (see `claim`).
        let delivery = row.record();
        let _: Option<DeliveryState> = row.word("state");
        delivery
    }
}

/// Puts an event into the outbox of every endpoint of the project that wants it, within the event's transaction.
pub(crate) async fn enqueue(
    write: &mut Write,
    project: &ProjectRef,
    domain: Option<&Hostname>,
    kind: &str,
    detail: &serde_json::Value,
    event: i64,
) -> Result<()> {
    if !EVENTS.contains(&kind) {
        return Ok(());
    }
    let endpoints = who_wants(write, project, kind).await?;
    let now = write.now();
    let message = Outgoing {
        // An event's number is unique in this database, and the time distinguishes it from numbers of a former
        // database.
        id: format!("msg_{:x}_{event:x}", now.0),
        kind,
        body: compose(project, domain, kind, detail, event, now),
    };
    deliver_to(write, project, endpoints, &message).await
}

/// Disables an endpoint; its waiting deliveries fail.
pub(super) async fn disable(
    write: &mut Write,
    project: &ProjectRef,
    endpoint: &str,
    reason: DisabledReason,
) -> Result<()> {
    let now = write.now();
    let changed = query(
        "UPDATE webhook_endpoints SET disabled_at = $1, disabled_reason = $2 WHERE id = $3 AND disabled_at IS NULL",
    );
    let changed = changed.bind((now.0, reason.as_str(), endpoint)).execute(write.connection()).await?;
    if changed.rows_affected() == 0 {
        return Ok(());
    }
    fail_waiting(write.connection(), endpoint).await?;
    let detail = serde_json::json!({ "webhook": endpoint, "reason": reason.as_str() });
    // Recording an event enqueues deliveries in turn. No endpoint receives this kind, so the recursion ends here.
    Box::pin(write.record(project, None, "webhook.disabled", &Actor::system(), detail)).await
}

/// Fails all waiting deliveries of an endpoint.
pub(crate) async fn fail_waiting(connection: &mut Connection, endpoint: &str) -> Result<()> {
    let fail = query(
        "UPDATE webhook_deliveries SET state = 'failed', due_at = NULL WHERE endpoint = $1 AND due_at IS NOT NULL",
    );
    fail.bind(endpoint).run(connection).await
}

/// Claims a due delivery until `end`. `None` when another worker has it.
pub(crate) async fn claim(store: &Store, id: i64, end: UnixMillis) -> Result<Option<Delivery>> {
    let mut write = store.write().await?;
    let now = write.now();
    let claimed = query_as(
        "UPDATE webhook_deliveries SET attempts = CASE WHEN attempts < 1000000 THEN attempts + 1 ELSE attempts END, due_at = $1
         WHERE id = $2 AND due_at <= $3 RETURNING *",
    );
    let claimed: Option<Found<Delivery>> = claimed.bind((end.0, id, now.0)).fetch_optional(write.connection()).await?;
    if let Some(Found { row, bad: Some(bad) }) = &claimed {
        // Otherwise every search would find it again. It is listed, and can be repeated after its repair.
        let failed = query("UPDATE webhook_deliveries SET state = 'failed', due_at = NULL WHERE id = $1");
        failed.bind(id).execute(write.connection()).await?;
        let key = rows::key(Table::WebhookDeliveries, id.to_string(), &row.endpoint);
        rows::record(write.connection().unreadable(), &key, bad.column, &bad.reason);
        write.commit().await?;
        return Ok(None);
    }
    write.commit().await?;
    Ok(claimed.map(|found| found.row))
}

/// Extends a claim before its `end`. A delivery that was removed or repeated meanwhile keeps its new state.
pub(crate) async fn renew(store: &Store, delivery: &mut Delivery, end: UnixMillis) -> Result<()> {
    let renewed = query("UPDATE webhook_deliveries SET due_at = $1 WHERE id = $2 AND due_at = $3");
    let renewed = renewed.bind((end.0, delivery.id, delivery.due_at)).execute(store.writer()).await?;
    if renewed.rows_affected() > 0 {
        delivery.due_at = Some(end.0);
    }
    Ok(())
}

/// Stores the result of an attempt, and disables an endpoint that is gone or has failed for `patience_millis`. Returns
/// the reason if it did. A delivery that was removed or repeated meanwhile keeps its new state.
pub(crate) async fn record(
    store: &Store,
    delivery: &Delivery,
    project: &ProjectRef,
    attempt: &Attempt,
    next: Option<UnixMillis>,
    patience_millis: i64,
) -> Result<Option<DisabledReason>> {
    let mut write = store.write().await?;
    let now = write.now();
    let delivered = attempt.result == AttemptResult::Delivered;
    let state = match (delivered, next) {
        (true, _) => DeliveryState::Delivered,
        (false, Some(_)) => DeliveryState::Waiting,
        (false, None) => DeliveryState::Failed,
    };
    let noted = query(
        "UPDATE webhook_deliveries SET state = $1, due_at = $2, last_result = $3, last_status = $4, last_error = $5,
             last_at = $6 WHERE id = $7 AND due_at = $8",
    )
    .bind((
        state.as_str(),
        next.filter(|_| !delivered).map(|at| at.0),
        attempt.result.as_str(),
        attempt.status.map(i64::from),
        attempt.explanation,
        now.0,
        delivery.id,
        delivery.due_at,
    ))
    .execute(write.connection())
    .await?;
    let mut disabled = None;
    if noted.rows_affected() > 0 {
        disabled = judge_endpoint(&mut write, delivery, attempt.result, now, patience_millis).await?;
        if let Some(reason) = disabled {
            disable(&mut write, project, &delivery.endpoint, reason).await?;
        }
    }
    write.commit().await?;
    Ok(disabled)
}

async fn judge_endpoint(
    write: &mut Write,
    delivery: &Delivery,
    result: AttemptResult,
    now: UnixMillis,
    patience_millis: i64,
) -> Result<Option<DisabledReason>> {
    if result == AttemptResult::Delivered {
        let update = query("UPDATE webhook_endpoints SET failing_since = NULL, delivered_at = $1 WHERE id = $2");
        update.bind((now.0, &delivery.endpoint)).execute(write.connection()).await?;
        return Ok(None);
    }
    let since: Option<Found<(Option<i64>,)>> = query_as(
        "UPDATE webhook_endpoints SET failing_since = COALESCE(failing_since, $1) WHERE id = $2 RETURNING failing_since",
    )
    .bind((now.0, &delivery.endpoint))
    .fetch_optional(write.connection())
    .await?;
    let since = since.and_then(|found| found.row.0);
    let too_long = since.is_some_and(|since| now.since(UnixMillis(since)) >= patience_millis);
    Ok(match result {
        AttemptResult::Gone => Some(DisabledReason::Gone),
        _ if too_long => Some(DisabledReason::Failing),
        _ => None,
    })
}

/// Makes a delivery due again, with as many attempts as the first time. `None` if it does not exist.
pub(crate) async fn repeat(write: &mut Write, endpoint: &str, id: i64) -> Result<Option<Delivery>> {
    let now = write.now();
    let repeated: Option<StoredRow<Delivery>> = query_as(
        "UPDATE webhook_deliveries SET state = 'waiting', attempts = 0, due_at = $1 WHERE endpoint = $2 AND id = $3
         RETURNING *",
    )
    .bind((now.0, endpoint, id))
    .fetch_optional(write.connection())
    .await?;
    if let Some(StoredRow { key, bad: Some(bad), .. }) = &repeated {
        return Err(rows::unreadable(key, bad.column));
    }
    if repeated.is_some() {
        let [_, waiting] = counted(endpoint);
        kept::one_more(write.connection(), &waiting).await?;
    }
    rows::checked(write.connection().unreadable(), repeated)
}

/// Deletes finished deliveries from before `before`.
pub(crate) async fn forget_deliveries(write: &mut Write, before: UnixMillis) -> Result<()> {
    let delete = query("DELETE FROM webhook_deliveries WHERE due_at IS NULL AND created_at < $1");
    delete.bind(before.0).run(write.connection()).await
}

impl Store {
    /// Deliveries of an endpoint, newest first, below `before`, and in one state if given.
    pub(crate) async fn deliveries(
        &self,
        endpoint: &str,
        state: Option<DeliveryState>,
        before: i64,
        limit: i64,
    ) -> Result<Vec<Delivery>> {
        let found = query_as(
            "SELECT * FROM webhook_deliveries
             WHERE endpoint = $1 AND id < $2 AND ($3 IS NULL OR state = $3) ORDER BY id DESC LIMIT $4",
        );
        rows::all(self.reader(), found.bind((endpoint, before, state.map(DeliveryState::as_str), limit))).await
    }

    /// How many deliveries wait, and how many of them should have been tried before `overdue`.
    pub(crate) async fn delivery_backlog(&self, overdue: UnixMillis) -> Result<(i64, i64)> {
        let counts = query_as(
            "SELECT COUNT(*), COUNT(*) FILTER (WHERE due_at < $1) FROM webhook_deliveries WHERE due_at IS NOT NULL",
        );
        Ok(counts.bind(overdue.0).fetch_one(self.reader()).await?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chassis::clock::ManualClock;
    use chassis::sql::query_scalar;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn messages_that_are_not_fetched_do_not_grow_without_end() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(UnixMillis(1_000)));
        let store = Store::open(&directory.path().join("db.sqlite").into(), clock).await.unwrap();
        sqlx::raw_sql(
            "INSERT INTO projects (id, name, salt, proof_key, plan, access, upstream, suspended, created_at, updated_at)
             VALUES ('demo', 'demo', 's', '', 'pro', 'key', 'orders', FALSE, 1, 1);
             INSERT INTO webhook_endpoints (id, project, url, description, events, sealed_secret, created_at, updated_at)
             VALUES ('full', 'demo', '', '', '[\"domain.*\"]', '', 1, 1), ('other', 'demo', '', '', '[\"domain.*\"]', '', 1, 1);
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
             INSERT INTO webhook_deliveries (endpoint, message, kind, body, state, attempts, due_at, created_at)
             SELECT 'full', 'msg', 'domain.created', '{}', 'waiting', 1, 2000, 1 FROM n;
             INSERT INTO kept_rows (owner, kept) VALUES ('waiting full', 10000);",
        )
        .execute(store.writer().sqlite().unwrap())
        .await
        .unwrap();
        let project: ProjectRef = "demo".parse().unwrap();
        for expected in [(10_001, None), (2, Some("backlog")), (3, Some("backlog"))] {
            let mut write = store.write().await.unwrap();
            write.record(&project, None, "domain.created", &Actor::system(), json!({})).await.unwrap();
            write.commit().await.unwrap();
            let (waiting, overdue) = store.delivery_backlog(UnixMillis(1_500)).await.unwrap();
            let reason: Option<String> =
                query_scalar("SELECT disabled_reason FROM webhook_endpoints WHERE id = 'full'")
                    .fetch_one(store.reader())
                    .await
                    .unwrap();
            assert_eq!((waiting, reason.as_deref()), expected);
            assert!(overdue >= 1);
        }
    }

    #[tokio::test]
    async fn an_endpoint_keeps_a_maximum_of_deliveries_and_everything_that_waits() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(UnixMillis(1_000)));
        let store = Store::open(&directory.path().join("db.sqlite").into(), clock).await.unwrap();
        sqlx::raw_sql(
            "INSERT INTO projects (id, name, salt, proof_key, plan, access, upstream, suspended, created_at, updated_at)
             VALUES ('demo', 'demo', 's', '', 'pro', 'key', 'orders', FALSE, 1, 1);
             INSERT INTO webhook_endpoints (id, project, url, description, events, sealed_secret, created_at, updated_at)
             VALUES ('full', 'demo', '', '', '[\"domain.*\"]', '', 1, 1);
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
             INSERT INTO webhook_deliveries (endpoint, message, kind, body, state, attempts, due_at, created_at)
             SELECT 'full', 'msg', 'domain.created', '{}', IIF(i <= 50, 'waiting', 'delivered'), 1,
                 IIF(i <= 50, 2000, NULL), 1 FROM n;
             INSERT INTO kept_rows (owner, kept) VALUES ('deliveries full', 20000);",
        )
        .execute(store.writer().sqlite().unwrap())
        .await
        .unwrap();
        let project: ProjectRef = "demo".parse().unwrap();
        let mut write = store.write().await.unwrap();
        write.record(&project, None, "domain.created", &Actor::system(), json!({})).await.unwrap();
        write.commit().await.unwrap();
        let count = async |text: &'static str| {
            let count: i64 = query_scalar(text).fetch_one(store.reader()).await.unwrap();
            count
        };
        assert_eq!(count("SELECT COUNT(*) FROM webhook_deliveries WHERE due_at IS NULL").await, 9_000);
        assert_eq!(count("SELECT COUNT(*) FROM webhook_deliveries WHERE due_at IS NOT NULL").await, 51);
        assert_eq!(count("SELECT kept FROM kept_rows WHERE owner = 'deliveries full'").await, 9_051);
        let mut write = store.write().await.unwrap();
        let endpoint = super::super::find_webhook(write.connection(), &project, "full").await.unwrap().unwrap();
        super::super::delete_webhook(write.connection(), &endpoint).await.unwrap();
        write.commit().await.unwrap();
        assert_eq!(count("SELECT COUNT(*) FROM kept_rows WHERE owner LIKE '%full'").await, 0);
    }
}
