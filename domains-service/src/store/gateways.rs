//! Gateways with a credential of their own, and the generations of their keys.

use chassis::sql::{query, query_as, query_scalar};
use contract::keyring::GENERATIONS_MAX;
use contract::time::{UnixMillis, UnixSeconds};

use super::{Store, StoreError, Write};

/// Gateways on record, revoked ones too.
pub(crate) const GATEWAYS_MAX: i64 = 1_024;

/// How often it is written down that a gateway was heard, in milliseconds.
const SEEN_EVERY_MILLIS: i64 = 60_000;

/// A gateway on record.
#[derive(Clone, Debug)]
pub(crate) struct Gateway {
    pub(crate) name: String,
    pub(crate) created_at: i64,
    pub(crate) last_seen_at: Option<i64>,
    pub(crate) revoked_at: Option<i64>,
}

/// A generation of keys as it rests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SealedGeneration {
    pub(crate) number: i64,
    pub(crate) sealed: String,
    pub(crate) signs_from: UnixSeconds,
}

/// Why a gateway is not put on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotEnrolled {
    /// There is one of this name, and its credential is good.
    Exists,
    /// There are [`GATEWAYS_MAX`].
    TooMany,
}

impl Store {
    /// All gateways on record, by name.
    pub(crate) async fn gateways(&self) -> Result<Vec<Gateway>, StoreError> {
        let rows: Vec<(String, i64, Option<i64>, Option<i64>)> =
            query_as("SELECT name, created_at, last_seen_at, revoked_at FROM gateways ORDER BY name LIMIT $1")
                .bind(GATEWAYS_MAX)
                .fetch_all(self.reader())
                .await?;
        let gateway =
            |(name, created_at, last_seen_at, revoked_at)| Gateway { name, created_at, last_seen_at, revoked_at };
        Ok(rows.into_iter().map(gateway).collect())
    }

    /// The gateway whose credential has this digest, unless it was revoked; notes now and then that it was heard.
    pub(crate) async fn hear_gateway(&self, digest: &str, now: UnixMillis) -> Result<Option<String>, StoreError> {
        let found = query_as("SELECT name, last_seen_at FROM gateways WHERE digest = $1 AND revoked_at IS NULL");
        let found: Option<(String, Option<i64>)> = found.bind(digest).fetch_optional(self.reader()).await?;
        let Some((name, seen)) = found else { return Ok(None) };
        if seen.is_none_or(|seen| now.0.saturating_sub(seen) >= SEEN_EVERY_MILLIS) {
            query("UPDATE gateways SET last_seen_at = $2 WHERE name = $1")
                .bind(&name)
                .bind(now.0)
                .execute(self.writer())
                .await?;
        }
        Ok(Some(name))
    }

    /// Whether the credential of this gateway is good.
    pub(crate) async fn is_welcome(&self, name: &str) -> Result<bool, StoreError> {
        let found = query_scalar("SELECT COUNT(*) FROM gateways WHERE name = $1 AND revoked_at IS NULL");
        let found: i64 = found.bind(name).fetch_one(self.reader()).await?;
        Ok(found > 0)
    }

    /// The generations of keys, the newest first.
    pub(crate) async fn generations(&self) -> Result<Vec<SealedGeneration>, StoreError> {
        let rows: Vec<(i64, String, i64)> =
            query_as("SELECT number, sealed, signs_from FROM gateway_keys ORDER BY number DESC")
                .fetch_all(self.reader())
                .await?;
        let generation =
            |(number, sealed, signs_from)| SealedGeneration { number, sealed, signs_from: UnixSeconds(signs_from) };
        Ok(rows.into_iter().map(generation).collect())
    }
}

impl Write {
    /// Puts a gateway on record; one that was revoked is replaced.
    pub(crate) async fn enrol(&mut self, name: &str, digest: &str) -> Result<Result<(), NotEnrolled>, StoreError> {
        let now = self.now().0;
        let count: i64 = query_scalar("SELECT COUNT(*) FROM gateways WHERE name <> $1")
            .bind(name)
            .fetch_one(self.connection())
            .await?;
        if count >= GATEWAYS_MAX {
            return Ok(Err(NotEnrolled::TooMany));
        }
        let enrolled = query(
            "INSERT INTO gateways (name, digest, created_at) VALUES ($1, $2, $3)
             ON CONFLICT (name) DO UPDATE
             SET digest = excluded.digest, created_at = excluded.created_at, last_seen_at = NULL, revoked_at = NULL
             WHERE gateways.revoked_at IS NOT NULL",
        )
        .bind(name)
        .bind(digest)
        .bind(now)
        .execute(self.connection())
        .await?;
        Ok(if enrolled.rows_affected() == 0 { Err(NotEnrolled::Exists) } else { Ok(()) })
    }

    /// Puts a gateway on record with the credential in a file of ours. A revoked one stays revoked until its file has
    /// another.
    pub(crate) async fn enrol_file(&mut self, name: &str, digest: &str) -> Result<bool, StoreError> {
        let now = self.now().0;
        let enrolled = query(
            "INSERT INTO gateways (name, digest, created_at) VALUES ($1, $2, $3)
             ON CONFLICT (name) DO UPDATE
             SET digest = excluded.digest, created_at = excluded.created_at, last_seen_at = NULL, revoked_at = NULL
             WHERE gateways.digest <> excluded.digest",
        )
        .bind(name)
        .bind(digest)
        .bind(now)
        .execute(self.connection())
        .await?;
        Ok(enrolled.rows_affected() > 0)
    }

    /// Refuses a gateway's credential from now on. Whether there was one.
    pub(crate) async fn revoke_gateway(&mut self, name: &str) -> Result<bool, StoreError> {
        let now = self.now().0;
        let revoked = query("UPDATE gateways SET revoked_at = $2 WHERE name = $1 AND revoked_at IS NULL")
            .bind(name)
            .bind(now)
            .execute(self.connection())
            .await?;
        Ok(revoked.rows_affected() > 0)
    }

    /// Adds a generation of keys and forgets those that are too many; all others if they are `compromised`.
    pub(crate) async fn add_generation(
        &mut self,
        generation: &SealedGeneration,
        compromised: bool,
    ) -> Result<(), StoreError> {
        let kept = if compromised { 0 } else { i64::try_from(GENERATIONS_MAX).unwrap_or(i64::MAX) - 1 };
        query(
            "DELETE FROM gateway_keys WHERE number NOT IN
             (SELECT number FROM gateway_keys ORDER BY number DESC LIMIT $1)",
        )
        .bind(kept)
        .execute(self.connection())
        .await?;
        // Another replica that started in the same second was first: its generation is as good.
        query(
            "INSERT INTO gateway_keys (number, sealed, signs_from) VALUES ($1, $2, $3) ON CONFLICT (number) DO NOTHING",
        )
        .bind(generation.number)
        .bind(&generation.sealed)
        .bind(generation.signs_from.0)
        .execute(self.connection())
        .await?;
        Ok(())
    }
}
