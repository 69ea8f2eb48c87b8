//! Sealed texts in the database: private keys of certificates in service and of orders in progress, accounts at
//! certificate authorities, secrets of webhooks. Finds the sealing secret of each, and seals texts again with the
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

use super::log::StoredEntity;
use super::rows::{self, Table};
use super::{Store, StoreError};
use crate::webhook::endpoint;

/// The place an order's key is sealed for; not the hostname alone, which is that of keys in service.
pub(crate) fn order_place(hostname: &str) -> String {
    format!("acme order {hostname}")
}

/// How many texts are sealed with what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seals {
    /// With the newest secret.
    pub(crate) newest: i64,
    /// With another one that we have: to be sealed anew.
    pub(crate) older: i64,
    /// With one that we do not have: they do not open.
    pub(crate) missing: i64,
}

impl Seals {
    /// The labels of the gauge, in the order of the fields.
    pub(crate) const WORDS: [&str; 3] = ["newest", "older", "missing"];

    /// Counts by the name of the secret, told apart by what we have.
    pub(crate) fn of(sealing: &SealingKey, counts: &BTreeMap<String, i64>) -> Self {
        let mut seals = Self::default();
        for (name, count) in counts {
            if name == sealing.newest() {
                seals.newest += count;
            } else if sealing.has(name) {
                seals.older += count;
            } else {
                seals.missing += count;
            }
        }
        seals
    }
}

/// A table with a column of sealed texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    table: Table,
    /// At most `$2` texts that need the secret `$1`, after the key `$3`, with what identifies them.
    find: &'static str,
    /// Puts `$1` in the place of the text `$2` of the key `$3`.
    replace: &'static str,
    /// What texts of a key are sealed for.
    place: fn(&str) -> String,
}

/// Every column of sealed texts but that of certificates in service. Accounts rest under the names they are sealed for.
/// Two orders for one name stand at two authorities; one that is missed at the end of a batch is found by the next
/// round.
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

/// What became of some texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resealed {
    /// Sealed with the newest secret now.
    pub(crate) done: u64,
    /// The last key that was looked at; `None` when there was nothing.
    pub(crate) last: Option<String>,
    /// The revision that gateways have when they have the new texts, if they are told of them.
    pub(crate) revision: Option<Revision>,
}

impl Store {
    /// How many texts need each secret, by its name.
    pub(crate) async fn count_seals(&self) -> Result<BTreeMap<String, i64>, StoreError> {
        let found: Vec<Found<(String, i64)>> = query_as(COUNT).fetch_all(self.reader()).await?;
        let mut counts = BTreeMap::new();
        for Found { row: (seal, texts), .. } in found {
            *counts.entry(seal).or_default() += texts;
        }
        Ok(counts)
    }

    /// Seals the keys of at most `limit` certificates anew that need the secret `seal`, after the name `after`.
    pub(crate) async fn reseal_certificates(
        &self,
        sealing: &SealingKey,
        seal: &str,
        after: &str,
        limit: i64,
    ) -> Result<Resealed, StoreError> {
        // One writing transaction chooses and writes the rows, so no other writer changes them in between.
        let mut write = self.write().await?;
        let mut resealed = Resealed::default();
        let found = certificates(write.connection(), seal, after, limit).await?;
        resealed.last = found.iter().rev().find(|found| is_named(found)).map(|found| found.row.name.clone());
        for entity in rows::each(write.connection(), found) {
            let Entity::Certificate(mut bundle) = entity else { continue };
            match sealing.reseal(&bundle.key.0, bundle.hostname.as_str()) {
                Ok(key) => {
                    bundle.key = SealedKey(key);
                    write.put(Entity::Certificate(bundle)).await?;
                    resealed.done += 1;
                }
                Err(error) => {
                    // Damaged, or moved from its place: it needs a new certificate, whatever secret there is.
                    tracing::error!(domain = %bundle.hostname, %error, "could not seal a private key with the newest secret");
                }
            }
        }
        resealed.revision = Some(write.commit().await?);
        Ok(resealed)
    }

    /// Writes the column anew of certificates that need the secret `seal` by that column and another one by their key.
    pub(crate) async fn mend_seals(&self, seal: &str, limit: i64) -> Result<(), StoreError> {
        let mut after = String::new();
        loop {
            let mut write = self.write().await?;
            let found = certificates(write.connection(), seal, &after, limit).await?;
            let Some(last) = found.iter().rev().find(|found| is_named(found)) else { return Ok(()) };
            after.clone_from(&last.row.name);
            for entity in rows::each(write.connection(), found) {
                let Entity::Certificate(CertificateBundle { hostname, key, .. }) = entity else { continue };
                if name_in(&key.0) != seal {
                    query("UPDATE entities SET seal = $1 WHERE kind = 'certificate' AND name = $2")
                        .bind(name_in(&key.0))
                        .bind(hostname.as_str())
                        .execute(write.connection())
                        .await?;
                    tracing::warn!(domain = %hostname, "repaired the damaged column seal of a certificate");
                }
            }
            write.commit().await?;
        }
    }

    /// Table and name of the texts that need a secret, at most `limit` of each column.
    pub(crate) async fn texts_with(&self, seal: &str, limit: i64) -> Result<Vec<(Table, String)>, StoreError> {
        let mut reading = self.reading().await?;
        let certificates = certificates(&mut reading, seal, "", limit).await?.into_iter();
        let mut texts: Vec<_> = certificates.map(|found| (Table::Entities, found.row.name)).collect();
        for column in COLUMNS {
            let found = query_as(column.find).bind(seal).bind(limit).bind("");
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
    ) -> Result<Vec<Hostname>, StoreError> {
        let names = certificates(connection, seal, after, limit).await?;
        Ok(names.iter().filter_map(|found| found.row.name.parse().ok()).collect())
    }

    /// Forgets accounts, orders in progress and former secrets of webhooks that need a secret.
    pub(crate) async fn forget_sealed(&self, seal: &str) -> Result<(), StoreError> {
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

    /// Seals at most `limit` texts of a column anew that need the secret `seal`, after the key `after`.
    pub(crate) async fn reseal_column(
        &self,
        column: Column,
        sealing: &SealingKey,
        seal: &str,
        after: &str,
        limit: i64,
    ) -> Result<Resealed, StoreError> {
        let found: Vec<Found<(String, String)>> =
            query_as(column.find).bind(seal).bind(limit).bind(after).fetch_all(self.reader()).await?;
        let mut resealed = Resealed::default();
        for Found { row: (key, text), bad } in found {
            // After a key that is no text nothing can be looked for; all others come before it.
            if bad.is_some_and(|bad| bad.column == "1") {
                tracing::error!(
                    key,
                    "could not seal a secret with the newest secret: the name of its present one is unreadable"
                );
                continue;
            }
            match sealing.reseal(&text, &(column.place)(&key)) {
                Ok(fresh) => {
                    // One that was changed meanwhile is sealed with the newest secret already.
                    query(column.replace).bind(&fresh).bind(&text).bind(&key).execute(self.writer()).await?;
                    resealed.done += 1;
                }
                Err(error) => {
                    tracing::error!(key, %error, "could not seal a secret with the newest secret");
                }
            }
            resealed.last = Some(key);
        }
        Ok(resealed)
    }
}

/// Whether the name of an entity can be read.
fn is_named(found: &Found<StoredEntity>) -> bool {
    found.bad.as_ref().is_none_or(|bad| bad.column == "body")
}

/// Whether certificates need a secret: more than one, because a single text that names it may be damaged.
pub(super) async fn is_in_use(connection: &mut Connection, seal: &str) -> Result<bool, StoreError> {
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
) -> Result<Vec<Found<StoredEntity>>, StoreError> {
    let found = query_as(
        "SELECT kind, name, body FROM entities WHERE kind = 'certificate' AND seal = $1 AND name > $2 ORDER BY name LIMIT $3",
    );
    Ok(found.bind(seal).bind(after).bind(limit).fetch_all(connection).await?)
}
