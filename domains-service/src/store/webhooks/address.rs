//! Puts an event into the outbox of every subscribed endpoint.

use chassis::sql::{query, query_as, query_scalar};

use super::super::rows::{self, Columns, ReadKey, Stored};
use super::super::{Result, Write, kept};
use super::outbox::{Delivery, disable};
use crate::project::ProjectRef;
use crate::webhook::{DisabledReason, EndpointRecord, TEST, Wanted, compose_test};

/// Deliveries that may wait for one endpoint. One more disables the endpoint, so that the outbox stays bounded.
const WAITING_MAX: i64 = 10_000;

/// Maximum of deliveries per endpoint, of any age, waiting and finished.
const DELIVERIES_PER_ENDPOINT_MAX: i64 = 20_000;

/// Settled deliveries left when there were more.
const SETTLED_LEFT: i64 = 9_000;

/// A message before it is addressed.
pub(crate) struct Outgoing<'m> {
    /// The same for every endpoint and attempt.
    pub(crate) id: String,
    pub(crate) kind: &'m str,
    pub(crate) body: String,
}

/// An endpoint and its subscribed events.
struct Wish(String, Wanted);

impl Stored for Wish {
    const IS_PART: bool = true;
    const KEY: ReadKey = EndpointRecord::KEY;

    fn read(row: &mut Columns<'_>) -> Option<Self> {
        Some(Self(row.text("id"), row.json("events")?))
    }
}

/// The project's enabled endpoints with a subscription to this kind of event. An endpoint with an unreadable list gets
/// none.
pub(crate) async fn who_wants(write: &mut Write, project: &ProjectRef, kind: &str) -> Result<Vec<String>> {
    let found =
        query_as("SELECT id, project, events FROM webhook_endpoints WHERE project = $1 AND disabled_at IS NULL")
            .bind(project.uid.as_str());
    let wanting =
        rows::all(write.connection(), found).await?.into_iter().filter(|Wish(_, wanted)| wanted.include(kind));
    Ok(wanting.map(|Wish(endpoint, _)| endpoint).collect())
}

/// Puts a message into the outbox of each of the endpoints.
pub(crate) async fn deliver_to(
    write: &mut Write,
    project: &ProjectRef,
    endpoints: Vec<String>,
    message: &Outgoing<'_>,
) -> Result<()> {
    let now = write.now();
    for endpoint in endpoints {
        if !one_more_may_wait(write, &endpoint).await? {
            disable(write, project, &endpoint, DisabledReason::Backlog).await?;
            continue;
        }
        let insert = query(
            "INSERT INTO webhook_deliveries (endpoint, message, kind, body, state, attempts, due_at, created_at)
             VALUES ($1, $2, $3, $4, 'waiting', 0, $5, $5)",
        );
        insert.bind((&endpoint, &message.id, message.kind, &message.body, now.0)).execute(write.connection()).await?;
        bound_deliveries(write, &endpoint).await?;
    }
    Ok(())
}

/// Puts a test message into the outbox of an endpoint. `None` if too many wait already; the endpoint is then disabled.
pub(crate) async fn send_test(
    write: &mut Write,
    project: &ProjectRef,
    endpoint: &str,
    id: &str,
) -> Result<Option<Delivery>> {
    let body = compose_test(project, endpoint, write.now());
    let message = Outgoing { id: id.to_owned(), kind: TEST, body };
    deliver_to(write, project, vec![endpoint.to_owned()], &message).await?;
    let sent = query_as("SELECT * FROM webhook_deliveries WHERE endpoint = $1 AND message = $2").bind((endpoint, id));
    rows::one(write.connection(), sent).await
}

/// The names of the counts of an endpoint's deliveries: of all, and of waiting ones.
pub(super) fn counted(endpoint: &str) -> [String; 2] {
    [format!("deliveries {endpoint}"), format!("waiting {endpoint}")]
}

/// Counts one more waiting delivery; returns whether it may wait. The rows are counted only when [`WAITING_MAX`] would
/// be exceeded by the count, which is never too low: counting 10,000 rows for each event would keep other writers out.
async fn one_more_may_wait(write: &mut Write, endpoint: &str) -> Result<bool> {
    let [_, owner] = counted(endpoint);
    if kept::one_more(write.connection(), &owner).await? <= WAITING_MAX {
        return Ok(true);
    }
    let waiting = query_scalar("SELECT COUNT(*) FROM webhook_deliveries WHERE endpoint = $1 AND due_at IS NOT NULL");
    let waiting: i64 = waiting.bind(endpoint).fetch_one(write.connection()).await?;
    let may_wait = waiting < WAITING_MAX;
    kept::put_right(write.connection(), &owner, waiting + i64::from(may_wait)).await?;
    Ok(may_wait)
}

/// Counts the delivery, and deletes the oldest finished ones of an endpoint with more than
/// [`DELIVERIES_PER_ENDPOINT_MAX`].
async fn bound_deliveries(write: &mut Write, endpoint: &str) -> Result<()> {
    let [owner, _] = counted(endpoint);
    if kept::one_more(write.connection(), &owner).await? <= DELIVERIES_PER_ENDPOINT_MAX {
        return Ok(());
    }
    let delete_oldest = query(
        "DELETE FROM webhook_deliveries WHERE endpoint = $1 AND due_at IS NULL AND id <=
             (SELECT id FROM webhook_deliveries WHERE endpoint = $1 AND due_at IS NULL
              ORDER BY id DESC LIMIT 1 OFFSET $2)",
    );
    delete_oldest.bind((endpoint, SETTLED_LEFT)).execute(write.connection()).await?;
    let left = query_scalar("SELECT COUNT(*) FROM webhook_deliveries WHERE endpoint = $1");
    let left: i64 = left.bind(endpoint).fetch_one(write.connection()).await?;
    kept::put_right(write.connection(), &owner, left).await
}
