//! Stored data about certificate authorities: accounts and orders in progress.

use chassis::sql::{Connection, On, query, query_as};
use contract::feed::Entity;
use contract::hostname::Hostname;
use contract::time::UnixMillis;

use super::rows::{self, Columns, ReadKey, Stored, StoredRow, Table};
use super::{Result, Store, queue};

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

impl Stored for OrderRecord {
    const KEY: ReadKey = |row| rows::key(Table::AcmeOrders, row.text("url"), row.text("authority"));

    fn read(row: &mut Columns<'_>) -> Option<Self> {
        let order = Self {
            authority: row.text("authority"),
            hostname: row.word("hostname")?,
            url: row.text("url"),
            sealed_key: row.get("sealed_key"),
            created_at: row.time("created_at"),
        };
        row.whole(order)
    }
}

/// Time for which an unreadable order is postponed, in milliseconds.
const POSTPONED_MILLIS: i64 = 3_600_000;

impl Store {
    /// The last order for a name at an authority. An unreadable one counts as absent, and the next replaces it.
    pub(crate) async fn find_order(&self, authority: &str, hostname: &Hostname) -> Result<Option<OrderRecord>> {
        let row = query_as("SELECT * FROM acme_orders WHERE authority = $1 AND hostname = $2");
        rows::readable(self.reader(), row.bind((authority, hostname.as_str()))).await
    }

    /// Stores an order in place of the former one. The wait for it is over.
    pub(crate) async fn save_order(&self, order: &OrderRecord) -> Result<()> {
        let mut write = self.write().await?;
        let values = [
            ("authority", (&order.authority).into()),
            ("hostname", order.hostname.as_str().into()),
            ("url", (&order.url).into()),
            ("sealed_key", order.sealed_key.as_deref().into()),
            ("created_at", order.created_at.0.into()),
            ("abandoned_at", None::<i64>.into()),
        ];
        rows::upsert(Table::AcmeOrders, &["authority", "hostname"], &[], values).execute(write.connection()).await?;
        queue::leave_one(write.connection(), &order.authority, &order.hostname).await?;
        write.commit().await.map(drop)
    }

    /// Orders of removed names with authorizations to deactivate now, at most `limit`.
    pub(crate) async fn abandoned_orders(&self, now: UnixMillis, limit: i64) -> Result<Vec<OrderRecord>> {
        let found = query_as("SELECT * FROM acme_orders WHERE abandoned_at <= $1 ORDER BY abandoned_at LIMIT $2");
        let found: Vec<StoredRow<OrderRecord>> = found.bind((now.0, limit)).fetch_all(self.reader()).await?;
        let (orders, unreadable) = rows::split(self.reader().unreadable(), found);
        for key in unreadable {
            let postpone = query("UPDATE acme_orders SET abandoned_at = $1 WHERE url = $2 AND authority = $3");
            postpone.bind((now.plus(POSTPONED_MILLIS).0, &key.row, &key.of)).execute(self.writer()).await?;
        }
        Ok(orders)
    }

    /// Deletes an order after its authorizations are deactivated, unless another order has replaced it.
    pub(crate) async fn forget_abandoned(&self, order: &OrderRecord) -> Result<()> {
        let delete = query("DELETE FROM acme_orders WHERE authority = $1 AND hostname = $2 AND url = $3");
        delete.bind((&order.authority, order.hostname.as_str(), &order.url)).run(self.writer()).await
    }

    /// Postpones an abandoned order, because its authority does not answer.
    pub(crate) async fn postpone_abandonment(&self, order: &OrderRecord, until: UnixMillis) -> Result<()> {
        let postpone =
            query("UPDATE acme_orders SET abandoned_at = $1 WHERE authority = $2 AND hostname = $3 AND url = $4");
        postpone.bind((until.0, &order.authority, order.hostname.as_str(), &order.url)).run(self.writer()).await
    }

    /// Stores a setting unless it exists; returns the stored value.
    pub(crate) async fn remember(&self, name: &str, value: &str) -> Result<String> {
        let insert = query("INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING");
        insert.bind((name, value)).execute(self.writer()).await?;
        Ok(self.setting(name).await?.unwrap_or_else(|| value.to_owned()))
    }

    /// Deletes a setting.
    pub(crate) async fn forget_setting(&self, name: &str) -> Result<()> {
        query("DELETE FROM settings WHERE name = $1").bind(name).run(self.writer()).await
    }

    /// The chain that the edge serves for a name, PEM.
    pub(crate) async fn published_chain(&self, hostname: &Hostname) -> Result<Option<String>> {
        let found = query_as("SELECT kind, name, body FROM entities WHERE kind = 'certificate' AND name = $1");
        // An unreadable certificate cannot be named to an authority; its renewal writes it again.
        Ok(match rows::readable(self.reader(), found.bind(hostname.as_str())).await? {
            Some(Entity::Certificate(bundle)) => Some(bundle.chain_pem),
            _ => None,
        })
    }
}

/// Ends the orders and waits of a name because its certificate is in service.
pub(crate) async fn finish_orders(connection: &mut Connection, hostname: &Hostname) -> Result<()> {
    let leave = query("DELETE FROM certificate_queue WHERE hostname = $1");
    leave.bind(hostname.as_str()).execute(&mut *connection).await?;
    query("UPDATE acme_orders SET sealed_key = NULL WHERE hostname = $1").bind(hostname.as_str()).run(connection).await
}

/// Deletes a failed order, so that the next attempt begins a new one.
pub(crate) async fn forget_order(on: impl Into<On<'_>>, authority: &str, hostname: &Hostname) -> Result<()> {
    let order = query("DELETE FROM acme_orders WHERE authority = $1 AND hostname = $2");
    order.bind((authority, hostname.as_str())).run(on).await
}

/// Deletes limits that are wholly free again, and abandons orders and waits of names without a domain, which a crash
/// may leave.
pub(crate) async fn tidy(connection: &mut Connection, now: UnixMillis) -> Result<()> {
    queue::tidy(connection, now).await?;
    // Only orders in progress: a domain in service keeps its last order.
    let abandon = query(
        "UPDATE acme_orders SET abandoned_at = $1, sealed_key = NULL
         WHERE sealed_key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM domains WHERE name = acme_orders.hostname)",
    );
    abandon.bind(now.0).run(connection).await
}

/// A name was removed: unless another project has it, its authorizations are to be deactivated.
pub(crate) async fn abandon_orders(connection: &mut Connection, hostname: &Hostname, now: UnixMillis) -> Result<()> {
    let abandon = query(
        "UPDATE acme_orders SET abandoned_at = $1, sealed_key = NULL
         WHERE hostname = $2 AND NOT EXISTS (SELECT 1 FROM domains WHERE name = $2)",
    );
    abandon.bind((now.0, hostname.as_str())).run(connection).await
}
