//! Sealed texts in the database: private keys of certificates in service and of orders in progress, accounts at
//! certificate authorities, secrets of webhooks. Finds the sealing secret of each, and counts texts again with the
//! newest.
//!
//! Each text begins with the name of its secret and a full stop. Certificates have the name in a separate column, with
//! an index that finds one among a million.

use std::collections::BTreeMap;

use chassis::seal::{SealingKey, name_in};
use chassis::sql::{Connection, Found, query, query_as, query_scalar};
use contract::certificate::{CertificateBundle, SealedKey};
use contract::feed::{Entity, Revision};
use contract::hostname::Hostname;

use super::rows::{self, StoredRow, Table};
use super::{Result, Store};
use crate::webhook::endpoint;

/// The name for which an order's key is sealed. It differs from the hostname, for which keys in service are sealed.
pub(crate) fn order_place(hostname: &str) -> String {
    format!("acme order {hostname}")
}

/// Sealed rows by the age of their secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SealedCounts {
    /// With the newest secret.
    pub(crate) newest: i64,
    /// With another configured secret: they are to be sealed again.
    pub(crate) older: i64,
    /// With a secret that is not configured: they cannot be opened.
    pub(crate) missing: i64,
}

impl SealedCounts {
    /// The labels of the gauge, in the order of the fields.
    pub(crate) const WORDS: [&str; 3] = ["newest", "older", "missing"];

    /// Sums counts by the name of the secret: newest, other configured, or missing.
    pub(crate) fn of(sealing: &SealingKey, counts: &BTreeMap<String, i64>) -> Self {
        let mut sealed = Self::default();
        for (name, count) in counts {
            if name == sealing.newest() {
                sealed.newest += count;
            } else if sealing.has(name) {
                sealed.older += count;
            } else {
                sealed.missing += count;
            }
        }
        sealed
    }
}

/// A table with a column of sealed texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    table: Table,
    /// Key and text of at most `$2` rows that need the secret `$1`, after the key `$3`.
    find: &'static str,
    /// Replaces the text `$2` of the key `$3` by `$1`.
    replace: &'static str,
    /// The name for which the text of a key is sealed.
    place: fn(&str) -> String,
}

/// Every column of sealed texts except that of certificates in service. Accounts are sealed for the name of their
/// setting. One name may have orders at two authorities; if the end of a batch misses one of them, the next round finds
/// it.
pub(crate) const COLUMNS: [Column; 4] = [
    Column {
        table: Table::WebhookEndpoints,
        find: "SELECT id, sealed_secret FROM webhook_endpoints WHERE id > $3
               AND CASE WHEN substr(sealed_secret, 17, 1) = '.' THEN substr(sealed_secret, 1, 16) ELSE '' END = $1
               ORDER BY id LIMIT $2",
        replace: "UPDATE webhook_endpoints SET sealed_secret = $1 WHERE sealed_secret = $2 AND id = $3",
        place: endpoint::place,
    },
    Column {
        table: Table::WebhookEndpoints,
        find: "SELECT id, previous_secret FROM webhook_endpoints WHERE id > $3 AND previous_secret IS NOT NULL
               AND CASE WHEN substr(previous_secret, 17, 1) = '.' THEN substr(previous_secret, 1, 16) ELSE '' END = $1
               ORDER BY id LIMIT $2",
        replace: "UPDATE webhook_endpoints SET previous_secret = $1 WHERE previous_secret = $2 AND id = $3",
        place: endpoint::place,
    },
    Column {
        table: Table::AcmeOrders,
        find: "SELECT hostname, sealed_key FROM acme_orders WHERE hostname > $3 AND sealed_key IS NOT NULL
               AND CASE WHEN substr(sealed_key, 17, 1) = '.' THEN substr(sealed_key, 1, 16) ELSE '' END = $1
               ORDER BY hostname LIMIT $2",
        replace: "UPDATE acme_orders SET sealed_key = $1 WHERE sealed_key = $2 AND hostname = $3",
        place: order_place,
    },
    Column {
        table: Table::Settings,
        find: "SELECT name, value FROM settings WHERE name > $3 AND name LIKE 'acme account %'
               AND CASE WHEN substr(value, 17, 1) = '.' THEN substr(value, 1, 16) ELSE '' END = $1
               ORDER BY name LIMIT $2",
        replace: "UPDATE settings SET value = $1 WHERE value = $2 AND name = $3",
        place: str::to_owned,
    },
];

/// Texts by the name of the secret they need.
const COUNT: &str = "SELECT seal, CAST(SUM(texts) AS BIGINT) FROM (
    SELECT seal, COUNT(*) AS texts FROM entities WHERE kind = 'certificate' GROUP BY seal
    UNION ALL
    SELECT CASE WHEN substr(text, 17, 1) = '.' THEN substr(text, 1, 16) ELSE '' END AS seal, 1 AS texts FROM (
        SELECT sealed_secret AS text FROM webhook_endpoints
        UNION ALL SELECT previous_secret FROM webhook_endpoints WHERE previous_secret IS NOT NULL
        UNION ALL SELECT sealed_key FROM acme_orders WHERE sealed_key IS NOT NULL
        UNION ALL SELECT value FROM settings WHERE name LIKE 'acme account %'
    ) AS others
) AS texts_of_all GROUP BY seal";

/// The result of one batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resealed {
    /// Rows sealed with the newest secret.
    pub(crate) done: u64,
    /// The last key of the batch; `None` when there was no row.
    pub(crate) last: Option<String>,
    /// The revision of the new texts, if they are published to gateways.
    pub(crate) revision: Option<Revision>,
}

impl Store {
    /// Counts rows by the name of their secret.
    pub(crate) async fn count_sealed(&self) -> Result<BTreeMap<String, i64>> {
        let found: Vec<Found<(String, i64)>> = query_as(COUNT).fetch_all(self.reader()).await?;
        Ok(found.into_iter().map(|found| found.row).collect())
    }

    /// Seals again the keys of at most `limit` certificates with the secret `seal`, after the name `after`.
    pub(crate) async fn reseal_certificates(
        &self,
        sealing: &SealingKey,
        seal: &str,
        after: &str,
        limit: i64,
    ) -> Result<Resealed> {
        // One writing transaction chooses and writes the rows, so no other writer changes them in between.
        let mut write = self.write().await?;
        let mut resealed = Resealed::default();
        let found = certificates(write.connection(), seal, after, limit).await?;
        resealed.last = found.iter().rev().find(|found| is_named(found)).map(|found| found.key.row.clone());
        for entity in rows::each(write.connection().unreadable(), found) {
            let Entity::Certificate(mut bundle) = entity else { continue };
            match sealing.reseal(&bundle.key.0, bundle.hostname.as_str()) {
                Ok(key) => {
                    bundle.key = SealedKey(key);
                    write.put(Entity::Certificate(bundle)).await?;
                    resealed.done += 1;
                }
                Err(error) => {
                    // The text is damaged or belongs to another name: only a new certificate helps, with any secret.
                    tracing::error!(
                        domain = %bundle.hostname, %error,
                        "cannot seal a private key with the newest sealing secret; it keeps its older one"
                    );
                }
            }
        }
        resealed.revision = Some(write.commit().await?);
        Ok(resealed)
    }

    /// Repairs the column `seal` of certificates where it names the secret `seal` and the key names another.
    pub(crate) async fn repair_seal_names(&self, seal: &str, limit: i64) -> Result<()> {
        let mut after = String::new();
        loop {
            let mut write = self.write().await?;
            let found = certificates(write.connection(), seal, &after, limit).await?;
            let Some(last) = found.iter().rev().find(|found| is_named(found)) else { return Ok(()) };
            after.clone_from(&last.key.row);
            for entity in rows::each(write.connection().unreadable(), found) {
                let Entity::Certificate(CertificateBundle { hostname, key, .. }) = entity else { continue };
                if name_in(&key.0) != seal {
                    let repair = query("UPDATE entities SET seal = $1 WHERE kind = 'certificate' AND name = $2");
                    repair.bind((name_in(&key.0), hostname.as_str())).execute(write.connection()).await?;
                    tracing::warn!(domain = %hostname, "repaired the damaged column seal of a certificate");
                }
            }
            write.commit().await?;
        }
    }

    /// Table and name of the rows that need a secret, at most `limit` of each column.
    pub(crate) async fn texts_with(&self, seal: &str, limit: i64) -> Result<Vec<(Table, String)>> {
        let mut reading = self.reading().await?;
        let certificates = certificates(&mut reading, seal, "", limit).await?.into_iter();
        let mut texts: Vec<_> = certificates.map(|found| (Table::Entities, found.key.row)).collect();
        for column in COLUMNS {
            let found = query_as(column.find).bind((seal, limit, ""));
            let found: Vec<Found<(String, String)>> = found.fetch_all(&mut reading).await?;
            texts.extend(found.into_iter().map(|found| (column.table, found.row.0)));
        }
        Ok(texts)
    }

    /// Names of certificates in service whose keys need a secret, at most `limit`, after the name `after`.
    pub(crate) async fn sealed_names(
        &self,
        connection: &mut Connection,
        seal: &str,
        after: &str,
        limit: i64,
    ) -> Result<Vec<Hostname>> {
        let names = certificates(connection, seal, after, limit).await?;
        Ok(names.iter().filter_map(|found| found.key.row.parse().ok()).collect())
    }

    /// Deletes accounts, orders in progress and former secrets of webhooks that need a secret.
    pub(crate) async fn forget_sealed(&self, seal: &str) -> Result<()> {
        let sealed = format!("{seal}.%");
        for text in [
            "DELETE FROM settings WHERE name LIKE 'acme account %' AND value LIKE $1",
            "DELETE FROM acme_orders WHERE sealed_key LIKE $1",
            "UPDATE webhook_endpoints SET previous_secret = NULL, previous_until = NULL WHERE previous_secret LIKE $1",
        ] {
            query(text).bind(&sealed).execute(self.writer()).await?;
        }
        Ok(())
    }

    /// Seals again at most `limit` texts of a column with the secret `seal`, after the key `after`.
    pub(crate) async fn reseal_column(
        &self,
        column: Column,
        sealing: &SealingKey,
        seal: &str,
        after: &str,
        limit: i64,
    ) -> Result<Resealed> {
        let found: Vec<Found<(String, String)>> =
            query_as(column.find).bind((seal, limit, after)).fetch_all(self.reader()).await?;
        let mut resealed = Resealed::default();
        for Found { row: (key, text), bad } in found {
            // No query can continue after a key that is not text; all other keys sort before it.
            if bad.is_some_and(|bad| bad.column == "1") {
                tracing::error!(
                    key,
                    "cannot seal a row with the newest sealing secret: the row's key is unreadable. Repair or delete \
                     the row"
                );
                continue;
            }
            match sealing.reseal(&text, &(column.place)(&key)) {
                Ok(fresh) => {
                    // A text that changed meanwhile is sealed with the newest secret already.
                    query(column.replace).bind((&fresh, &text, &key)).execute(self.writer()).await?;
                    resealed.done += 1;
                }
                Err(error) => {
                    tracing::error!(
                        key, %error,
                        "cannot seal a row with the newest sealing secret; it keeps its older one"
                    );
                }
            }
            resealed.last = Some(key);
        }
        Ok(resealed)
    }
}

/// Whether the name of an entity can be read.
fn is_named(found: &StoredRow<Entity>) -> bool {
    found.bad.as_ref().is_none_or(|bad| bad.column == "body")
}

/// Whether more than one certificate needs a secret: a single text that names it may be damaged.
pub(super) async fn is_in_use(connection: &mut Connection, seal: &str) -> Result<bool> {
    let rows =
        "SELECT COUNT(*) FROM (SELECT 1 FROM entities WHERE kind = 'certificate' AND seal = $1 LIMIT 2) AS first_rows";
    let rows: i64 = query_scalar(rows).bind(seal).fetch_one(connection).await?;
    Ok(rows > 1)
}

/// Certificates in service whose keys need a secret, by name.
async fn certificates(
    connection: &mut Connection,
    seal: &str,
    after: &str,
    limit: i64,
) -> Result<Vec<StoredRow<Entity>>> {
    let found = query_as(
        "SELECT kind, name, body FROM entities WHERE kind = 'certificate' AND seal = $1 AND name > $2 ORDER BY name LIMIT $3",
    );
    Ok(found.bind((seal, after, limit)).fetch_all(connection).await?)
}
