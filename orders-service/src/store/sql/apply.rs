//! Single changes inside the writer's transaction: read, decide by the pure rules, write.

use chassis::sql::{Connection, Kind, query, query_as, query_scalar};
use contract::project::ProjectUid;
use contract::time::UnixMillis;

use super::{COUNTED_MAX, erase, outbox, row};
use crate::order::{CancelError, Order, ShipDate, ShipError};
use crate::store::{ChangeError, CreateError, Created, EventKind, FaultKind, Idempotency, NewOrder, StoreError};

/// The largest id given to a new order: 2^53 - 1, above which JSON numbers lose digits in many clients.
pub(super) const NEW_ID_MAX: i64 = (1 << 53) - 1;

/// Expired idempotency keys removed when a key is added; more than one, so that their number falls.
const EXPIRED_KEYS_PER_CREATION: i64 = 8;

/// A transition of an order and the event that reports it.
pub(super) struct Change<D> {
    decide: D,
    event: EventKind,
}

impl Change<()> {
    pub(super) fn cancel() -> Change<impl FnOnce(Order) -> Result<Order, CancelError>> {
        Change { decide: Order::cancel, event: EventKind::Cancelled }
    }

    pub(super) fn ship(at: UnixMillis) -> Change<impl FnOnce(Order) -> Result<Order, ShipError>> {
        Change { decide: move |order: Order| order.ship(ShipDate::at(at)), event: EventKind::Shipped }
    }
}

/// Locks the project's orders until the transaction ends; must run before any read. SQLite has one writer and needs no
/// lock. With `may_be_new`, a project without orders gets the row that is locked.
pub(super) async fn lock(
    connection: &mut Connection,
    project: &ProjectUid,
    may_be_new: bool,
) -> Result<(), StoreError> {
    if connection.kind() == Kind::Sqlite {
        return Ok(());
    }
    let text = if may_be_new {
        "INSERT INTO stores (project, version, orders) VALUES ($1, 0, 0) \
         ON CONFLICT (project) DO UPDATE SET orders = stores.orders RETURNING version"
    } else {
        "SELECT version FROM stores WHERE project = $1 FOR UPDATE"
    };
    query_as::<(i64,)>(text).bind(project.as_str()).fetch_optional(connection).await?;
    Ok(())
}

/// Changes one order. The update's condition contains the state that the decision was based on, so it cannot apply to
/// an order that changed in between.
pub(super) async fn change<E>(
    connection: &mut Connection,
    project: &ProjectUid,
    id: i64,
    at: UnixMillis,
    change: Change<impl FnOnce(Order) -> Result<Order, E>>,
) -> Result<Order, ChangeError<E>> {
    let found = query_as(row::SELECT_ONE).bind(project.as_str()).bind(id).fetch_optional(&mut *connection).await;
    let Some(columns) = found.map_err(StoreError::from)? else { return Err(ChangeError::NotFound) };
    let before = row::read(project, columns)?;
    let after = (change.decide)(before).map_err(ChangeError::Refused)?;
    let text = "UPDATE orders SET ship_date_micros = $1, complete = $2, status = $3, checksum = $4 \
                WHERE project = $5 AND id = $6 AND status = $7";
    let updated = query(text)
        .bind(after.ship_date.map(ShipDate::micros))
        .bind(after.complete.map(i64::from))
        .bind(after.status.as_str())
        .bind(row::checksum(project, &after))
        .bind(project.as_str())
        .bind(id)
        .bind(before.status.as_str())
        .execute(&mut *connection)
        .await
        .map_err(StoreError::from)?;
    if updated.rows_affected() != 1 {
        return Err(
            StoreError::corrupt(format!("order {id} of project {project} changed under its transaction")).into()
        );
    }
    record(connection, project, id, change.event, at).await?;
    outbox::add(connection, project, &after, change.event, at).await?;
    touch(connection, project, 0).await?;
    Ok(after)
}

/// Creates an order, or finds the one that its idempotency key created.
pub(super) async fn create(
    connection: &mut Connection,
    project: &ProjectUid,
    new: NewOrder,
    idempotency: Option<Idempotency>,
    at: UnixMillis,
) -> Result<Created, CreateError> {
    if erase::is_erased(connection, project).await? {
        return Err(CreateError::Erased);
    }
    if let Some(idempotency) = &idempotency
        && let Some(id) = made_before(connection, project, idempotency, at).await?
    {
        // The fingerprint matched, so this request has the same values as the first one.
        return Ok(Created::Before(new.placed(id)));
    }
    let text = "SELECT MAX(id) FROM orders WHERE project = $1 AND id <= $2";
    let largest: Option<i64> = query_scalar(text)
        .bind(project.as_str())
        .bind(NEW_ID_MAX)
        .fetch_one(&mut *connection)
        .await
        .map_err(StoreError::from)?;
    let id = largest.unwrap_or(0).max(0) + 1;
    if id > NEW_ID_MAX {
        return Err(CreateError::IdsExhausted);
    }
    let order = new.placed(id);
    insert(connection, project, &order).await?;
    record(connection, project, id, EventKind::Created, at).await?;
    outbox::add(connection, project, &order, EventKind::Created, at).await?;
    if let Some(idempotency) = idempotency {
        remember(connection, project, &idempotency, id, at).await?;
    }
    touch(connection, project, 1).await?;
    Ok(Created::Now(order))
}

async fn made_before(
    connection: &mut Connection,
    project: &ProjectUid,
    idempotency: &Idempotency,
    at: UnixMillis,
) -> Result<Option<i64>, CreateError> {
    let text = "SELECT fingerprint, order_id FROM idempotency_keys \
                WHERE project = $1 AND idempotency_key = $2 AND expires_at_millis > $3";
    let found: Option<(i64, i64)> = query_as(text)
        .bind(project.as_str())
        .bind(&idempotency.key)
        .bind(at.0)
        .fetch_optional(&mut *connection)
        .await
        .map_err(StoreError::from)?;
    match found {
        None => Ok(None),
        Some((fingerprint, id)) if fingerprint == i64::from(idempotency.fingerprint) => Ok(Some(id)),
        Some(_) => Err(CreateError::KeyReused),
    }
}

async fn remember(
    connection: &mut Connection,
    project: &ProjectUid,
    idempotency: &Idempotency,
    id: i64,
    at: UnixMillis,
) -> Result<(), StoreError> {
    // This deletes keys of all projects. SKIP LOCKED: concurrent deletions of other replicas do not wait for each
    // other.
    let expired = match connection.kind() {
        Kind::Sqlite => {
            "DELETE FROM idempotency_keys WHERE (project, idempotency_key) IN \
             (SELECT project, idempotency_key FROM idempotency_keys WHERE expires_at_millis <= $1 \
              ORDER BY expires_at_millis LIMIT $2)"
        }
        Kind::Postgres => {
            "DELETE FROM idempotency_keys WHERE (project, idempotency_key) IN \
             (SELECT project, idempotency_key FROM idempotency_keys WHERE expires_at_millis <= $1 \
              ORDER BY expires_at_millis LIMIT $2 FOR UPDATE SKIP LOCKED)"
        }
    };
    query(expired).bind(at.0).bind(EXPIRED_KEYS_PER_CREATION).execute(&mut *connection).await?;
    // The table can still have this key, expired and not yet removed.
    let text = "INSERT INTO idempotency_keys (project, idempotency_key, fingerprint, order_id, expires_at_millis) \
                VALUES ($1, $2, $3, $4, $5) ON CONFLICT (project, idempotency_key) DO UPDATE SET \
                fingerprint = excluded.fingerprint, order_id = excluded.order_id, \
                expires_at_millis = excluded.expires_at_millis";
    query(text)
        .bind(project.as_str())
        .bind(&idempotency.key)
        .bind(i64::from(idempotency.fingerprint))
        .bind(id)
        .bind(idempotency.expires_at.0)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

async fn insert(connection: &mut Connection, project: &ProjectUid, order: &Order) -> Result<(), StoreError> {
    let text = "INSERT INTO orders (project, id, pet_id, quantity, ship_date_micros, complete, status, checksum) \
                VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    query(text)
        .bind(project.as_str())
        .bind(order.id)
        .bind(order.pet_id)
        .bind(order.quantity)
        .bind(order.ship_date.map(ShipDate::micros))
        .bind(order.complete.map(i64::from))
        .bind(order.status.as_str())
        .bind(row::checksum(project, order))
        .execute(&mut *connection)
        .await?;
    Ok(())
}

async fn record(
    connection: &mut Connection,
    project: &ProjectUid,
    id: i64,
    event: EventKind,
    at: UnixMillis,
) -> Result<(), StoreError> {
    let text = "INSERT INTO order_events (project, order_id, sequence, event, at_millis) \
                SELECT $1, $2, COALESCE(MAX(sequence), 0) + 1, $3, $4 FROM order_events \
                WHERE project = $1 AND order_id = $2 AND sequence < $5";
    query(text)
        .bind(project.as_str())
        .bind(id)
        .bind(event.as_str())
        .bind(at.0)
        .bind(COUNTED_MAX)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// Increases the project's version in the transaction of the change. An impossible version or count is replaced, the
/// version with one that no list has had.
pub(super) async fn touch(
    connection: &mut Connection,
    project: &ProjectUid,
    more_orders: i64,
) -> Result<(), StoreError> {
    let text = "INSERT INTO stores (project, version, orders) VALUES ($1, 1, $2) ON CONFLICT (project) DO UPDATE SET \
                version = CASE WHEN stores.version < $3 THEN stores.version + 1 ELSE $4 END, \
                orders = CASE WHEN stores.orders < $3 THEN stores.orders + excluded.orders \
                         ELSE (SELECT COUNT(*) FROM orders WHERE orders.project = $1) END";
    let fresh = chassis::random::bytes().map_err(|error| StoreError::new(FaultKind::Io, error.to_string()))?;
    query(text)
        .bind(project.as_str())
        .bind(more_orders)
        .bind(COUNTED_MAX)
        .bind(i64::from_le_bytes(fresh).rem_euclid(COUNTED_MAX / 2))
        .execute(&mut *connection)
        .await?;
    Ok(())
}
