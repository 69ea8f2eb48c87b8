//! Stored data about certificate authorities: accounts, orders in progress, and the used part of their limits.

use chassis::sql::{Connection, Found, RowKey, query, query_as, query_scalar};
use contract::hostname::Hostname;
use contract::time::UnixMillis;

use super::log::StoredEntity;
use super::rows::{self, Columns, Stored, Table};
use super::{Store, StoreError, Write};
use crate::limits::{Demand, QueuePosition, admit, next_position};

/// An order at an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OrderRecord {
    pub(crate) authority: String,
    pub(crate) hostname: Hostname,
    pub(crate) url: String,
    /// The sealed key of the ordered certificate; `None` once the certificate is in service.
    pub(crate) sealed_key: Option<String>,
    pub(crate) created_at: UnixMillis,
}

chassis::record! {
    struct Row {
        authority: String,
        hostname: String,
        url: String,
        sealed_key: Option<String>,
        created_at: i64,
    }
}

impl Stored for Row {
    type Value = OrderRecord;

    fn key(&self) -> RowKey {
        rows::key(Table::AcmeOrders, &self.url, &self.authority)
    }

    fn read(self, columns: &mut Columns) -> Option<OrderRecord> {
        let hostname = columns.word("hostname", &self.hostname).filter(|_| columns.unreadable().is_none())?;
        Some(OrderRecord {
            hostname,
            authority: self.authority,
            url: self.url,
            sealed_key: self.sealed_key,
            created_at: UnixMillis(self.created_at),
        })
    }
}

/// Time for which an unreadable order is postponed, in milliseconds.
const POSTPONED_MILLIS: i64 = 3_600_000;

/// A queue for a limit with a shorter span is not bounded by the number of domains.
const QUEUE_MILLIS_USUAL: i64 = 31 * 86_400 * 1_000;

/// When all of a limit, or of the queue for it, is free.
async fn free_at(write: &mut Write, name: &str) -> Result<UnixMillis, StoreError> {
    let free_at: Option<Found<(i64,)>> = query_as("SELECT free_at FROM acme_limits WHERE name = $1")
        .bind(name)
        .fetch_optional(write.connection())
        .await?;
    // An unreadable limit counts as wholly free until the next order writes it.
    let key = rows::key(Table::AcmeLimits, name, "");
    let free_at = free_at.map(|free_at| rows::column(write.connection(), &key, "free_at", free_at));
    Ok(UnixMillis(free_at.unwrap_or(0)))
}

/// The same, with a maximum: no order can have moved `free_at` beyond `latest`. A later value is damaged and would stop
/// orders; it is replaced by `latest`.
async fn free_by(write: &mut Write, name: &str, latest: UnixMillis) -> Result<UnixMillis, StoreError> {
    let free_at = free_at(write, name).await?;
    if free_at <= latest {
        return Ok(free_at);
    }
    tracing::error!(
        limit = name,
        free_at = free_at.0,
        latest = latest.0,
        "repaired an authority's limit whose free_at was later than possible: its row was damaged, the clock went back, \
         or the configured limit was larger before"
    );
    set_free_at(write, name, latest).await?;
    Ok(latest)
}

/// As [`free_at`], for the queue of a limit: at most each domain has a position in it.
async fn queue_ends_at(write: &mut Write, demand: &Demand, now: UnixMillis) -> Result<UnixMillis, StoreError> {
    let ends_at = free_at(write, &demand.queue()).await?;
    if ends_at.since(now) <= QUEUE_MILLIS_USUAL {
        return Ok(ends_at);
    }
    let domains: i64 = query_scalar("SELECT COUNT(*) FROM domains").fetch_one(write.connection()).await?;
    let positions = demand.limit.burst.saturating_add(domains).saturating_add(1);
    free_by(write, &demand.queue(), now.plus(positions.saturating_mul(demand.limit.refill))).await
}

async fn set_free_at(write: &mut Write, name: &str, free_at: UnixMillis) -> Result<(), StoreError> {
    query(
        "INSERT INTO acme_limits (name, free_at) VALUES ($1, $2)
         ON CONFLICT (name) DO UPDATE SET free_at = excluded.free_at",
    )
    .bind(name)
    .bind(free_at.0)
    .execute(write.connection())
    .await?;
    Ok(())
}

impl Store {
    /// The last order for a name at an authority. An unreadable one counts as absent, and the next replaces it.
    pub(crate) async fn find_order(
        &self,
        authority: &str,
        hostname: &Hostname,
    ) -> Result<Option<OrderRecord>, StoreError> {
        let row: Option<Found<Row>> = query_as(
            "SELECT authority, hostname, url, sealed_key, created_at FROM acme_orders
             WHERE authority = $1 AND hostname = $2",
        )
        .bind(authority)
        .bind(hostname.as_str())
        .fetch_optional(self.reader())
        .await?;
        Ok(rows::found(self.reader(), row))
    }

    /// Stores an order in place of the former one.
    pub(crate) async fn save_order(&self, order: &OrderRecord) -> Result<(), StoreError> {
        let values = [
            ("authority", (&order.authority).into()),
            ("hostname", order.hostname.as_str().into()),
            ("url", (&order.url).into()),
            ("sealed_key", order.sealed_key.as_deref().into()),
            ("created_at", order.created_at.0.into()),
            ("abandoned_at", None::<i64>.into()),
        ];
        rows::upsert(Table::AcmeOrders, &["authority", "hostname"], &[], values).execute(self.writer()).await?;
        Ok(())
    }

    /// Deletes an order that is no longer needed.
    pub(crate) async fn forget_order(&self, authority: &str, hostname: &Hostname) -> Result<(), StoreError> {
        query("DELETE FROM acme_orders WHERE authority = $1 AND hostname = $2")
            .bind(authority)
            .bind(hostname.as_str())
            .execute(self.writer())
            .await?;
        Ok(())
    }

    /// Orders of removed names with authorizations to deactivate now, at most `limit`.
    pub(crate) async fn abandoned_orders(&self, now: UnixMillis, limit: i64) -> Result<Vec<OrderRecord>, StoreError> {
        let found: Vec<Found<Row>> = query_as(
            "SELECT authority, hostname, url, sealed_key, created_at FROM acme_orders
             WHERE abandoned_at <= $1 ORDER BY abandoned_at LIMIT $2",
        )
        .bind(now.0)
        .bind(limit)
        .fetch_all(self.reader())
        .await?;
        let (orders, unreadable) = rows::split(self.reader(), found);
        for key in unreadable {
            query("UPDATE acme_orders SET abandoned_at = $1 WHERE url = $2 AND authority = $3")
                .bind(now.plus(POSTPONED_MILLIS).0)
                .bind(&key.row)
                .bind(&key.of)
                .execute(self.writer())
                .await?;
        }
        Ok(orders)
    }

    /// Deletes an order after its authorizations are deactivated, unless another order has replaced it.
    pub(crate) async fn forget_abandoned(&self, order: &OrderRecord) -> Result<(), StoreError> {
        query("DELETE FROM acme_orders WHERE authority = $1 AND hostname = $2 AND url = $3")
            .bind(&order.authority)
            .bind(order.hostname.as_str())
            .bind(&order.url)
            .execute(self.writer())
            .await?;
        Ok(())
    }

    /// Postpones an abandoned order, because its authority does not answer.
    pub(crate) async fn postpone_abandonment(&self, order: &OrderRecord, until: UnixMillis) -> Result<(), StoreError> {
        query("UPDATE acme_orders SET abandoned_at = $1 WHERE authority = $2 AND hostname = $3 AND url = $4")
            .bind(until.0)
            .bind(&order.authority)
            .bind(order.hostname.as_str())
            .bind(&order.url)
            .execute(self.writer())
            .await?;
        Ok(())
    }

    /// Takes units from all limits or from none; then returns a position in the queue of the limit that has room last. A
    /// `queued` order that finds no room, because another was faster, waits for the next room and takes no new position.
    pub(crate) async fn admit(
        &self,
        demands: &[Demand],
        queued: bool,
    ) -> Result<Result<(), QueuePosition>, StoreError> {
        let mut write = self.write().await?;
        let now = write.now();
        let mut taken = Vec::new();
        let mut full: Option<(UnixMillis, &Demand)> = None;
        for demand in demands {
            let latest = now.plus(demand.limit.burst.saturating_mul(demand.limit.refill));
            let mut available = admit(free_by(&mut write, &demand.name, latest).await?, now, demand.limit);
            // A new order must not take the room of waiting ones.
            if available.is_ok() && demand.takes && !queued && queue_ends_at(&mut write, demand, now).await? > now {
                available = Err(now);
            }
            match available {
                Ok(free_at) if demand.takes => taken.push((demand.name.clone(), free_at)),
                Err(from) if full.is_none_or(|(latest, _)| from > latest) => full = Some((from, demand)),
                Ok(_) | Err(_) => {}
            }
        }
        let mut position = None;
        if let Some((from, demand)) = full {
            taken.clear();
            let mut last = QueuePosition { at: from, number: 1 };
            if !queued {
                let tail = next_position(queue_ends_at(&mut write, demand, now).await?, from, now, demand.limit);
                last = tail;
                taken.push((demand.queue(), tail.at.plus(demand.limit.refill)));
            }
            position = Some(last);
        }
        for (name, free_at) in taken {
            set_free_at(&mut write, &name, free_at).await?;
        }
        write.commit().await?;
        Ok(position.map_or(Ok(()), Err))
    }

    /// Stores a setting unless it exists; returns the stored value.
    pub(crate) async fn remember(&self, name: &str, value: &str) -> Result<String, StoreError> {
        query("INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING")
            .bind(name)
            .bind(value)
            .execute(self.writer())
            .await?;
        Ok(self.setting(name).await?.unwrap_or_else(|| value.to_owned()))
    }

    /// Deletes a setting.
    pub(crate) async fn forget_setting(&self, name: &str) -> Result<(), StoreError> {
        query("DELETE FROM settings WHERE name = $1").bind(name).execute(self.writer()).await?;
        Ok(())
    }

    /// The chain that the edge serves for a name, PEM.
    pub(crate) async fn published_chain(&self, hostname: &Hostname) -> Result<Option<String>, StoreError> {
        let found: Option<Found<StoredEntity>> =
            query_as("SELECT kind, name, body FROM entities WHERE kind = 'certificate' AND name = $1")
                .bind(hostname.as_str())
                .fetch_optional(self.reader())
                .await?;
        // An unreadable certificate cannot be named to an authority; its renewal writes it again.
        Ok(match rows::found(self.reader(), found) {
            Some(contract::feed::Entity::Certificate(bundle)) => Some(bundle.chain_pem),
            _ => None,
        })
    }
}

/// Ends the orders of a name because its certificate is in service.
pub(crate) async fn finish_orders(connection: &mut Connection, hostname: &Hostname) -> Result<(), StoreError> {
    query("UPDATE acme_orders SET sealed_key = NULL WHERE hostname = $1")
        .bind(hostname.as_str())
        .execute(connection)
        .await?;
    Ok(())
}

/// Deletes a failed order, so that the next attempt begins a new one.
pub(crate) async fn forget_order(
    connection: &mut Connection,
    authority: &str,
    hostname: &Hostname,
) -> Result<(), StoreError> {
    query("DELETE FROM acme_orders WHERE authority = $1 AND hostname = $2")
        .bind(authority)
        .bind(hostname.as_str())
        .execute(connection)
        .await?;
    Ok(())
}

/// Deletes limits that are wholly free again, and abandons orders of names without a domain, which a crash may leave.
pub(crate) async fn tidy(connection: &mut Connection, now: UnixMillis) -> Result<(), StoreError> {
    query("DELETE FROM acme_limits WHERE CAST(free_at AS BIGINT) < $1").bind(now.0).execute(&mut *connection).await?;
    // Only orders in progress: a domain in service keeps its last order.
    query(
        "UPDATE acme_orders SET abandoned_at = $1, sealed_key = NULL
         WHERE sealed_key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM domains WHERE name = acme_orders.hostname)",
    )
    .bind(now.0)
    .execute(connection)
    .await?;
    Ok(())
}

/// A name was removed: unless another project has it, its authorizations are to be deactivated.
pub(crate) async fn abandon_orders(
    connection: &mut Connection,
    hostname: &Hostname,
    now: UnixMillis,
) -> Result<(), StoreError> {
    query(
        "UPDATE acme_orders SET abandoned_at = $1, sealed_key = NULL
         WHERE hostname = $2 AND NOT EXISTS (SELECT 1 FROM domains WHERE name = $2)",
    )
    .bind(now.0)
    .bind(hostname.as_str())
    .execute(connection)
    .await?;
    Ok(())
}
