//! Gateways and services with a credential of their own, and the generations of the keys of gateways.

use chassis::sql::{query, query_as, query_scalar};
use contract::keyring::GENERATIONS_MAX;
use contract::time::{UnixMillis, UnixSeconds};

use super::{Store, StoreError, Write};

/// What has a credential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// What the internet reaches.
    #[default]
    Gateway,
    /// What keeps data of projects behind it.
    Service,
}

impl Kind {
    /// The word in the database and the API.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Service => "service",
        }
    }
}

/// Gateways and services on record, revoked ones too.
pub(crate) const GATEWAYS_MAX: i64 = 1_024;

/// How often it is written down that a gateway was heard, in milliseconds.
const SEEN_EVERY_MILLIS: i64 = 60_000;

chassis::record! {
    /// A gateway or service on record.
    #[derive(Clone, Debug)]
    pub(crate) struct Gateway {
        pub(crate) name: String,
        /// One of [`Kind`]'s words.
        pub(crate) kind: String,
        pub(crate) created_at: i64,
        pub(crate) last_seen_at: Option<i64>,
        pub(crate) revoked_at: Option<i64>,
    }
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
    /// All on record, by name.
    pub(crate) async fn gateways(&self) -> Result<Vec<Gateway>, StoreError> {
        let found =
            query_as("SELECT name, kind, created_at, last_seen_at, revoked_at FROM gateways ORDER BY name LIMIT $1");
        Ok(found.bind(GATEWAYS_MAX).fetch_all(self.reader()).await?)
    }

    /// The gateway, or the service, whose credential has this digest, unless it was revoked; notes now and then that it
    /// was heard.
    pub(crate) async fn hear(&self, kind: Kind, digest: &str, now: UnixMillis) -> Result<Option<String>, StoreError> {
        let found =
            query_as("SELECT name, last_seen_at FROM gateways WHERE digest = $1 AND kind = $2 AND revoked_at IS NULL");
        let found: Option<(String, Option<i64>)> =
            found.bind(digest).bind(kind.as_str()).fetch_optional(self.reader()).await?;
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

    /// Whether the credential with this digest is good. The name alone says nothing: it may have another by now.
    pub(crate) async fn is_welcome(&self, digest: &str) -> Result<bool, StoreError> {
        let found =
            query_scalar("SELECT COUNT(*) FROM gateways WHERE digest = $1 AND kind = 'gateway' AND revoked_at IS NULL");
        let found: i64 = found.bind(digest).fetch_one(self.reader()).await?;
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
    /// Puts a gateway or service on record; one that was revoked is replaced.
    pub(crate) async fn enrol(
        &mut self,
        kind: Kind,
        name: &str,
        digest: &str,
    ) -> Result<Result<(), NotEnrolled>, StoreError> {
        let now = self.now().0;
        let count: i64 = query_scalar("SELECT COUNT(*) FROM gateways WHERE name <> $1")
            .bind(name)
            .fetch_one(self.connection())
            .await?;
        if count >= GATEWAYS_MAX {
            return Ok(Err(NotEnrolled::TooMany));
        }
        let enrolled = query(
            "INSERT INTO gateways (name, digest, created_at, kind) VALUES ($1, $2, $3, $4)
             ON CONFLICT (name) DO UPDATE
             SET digest = excluded.digest, created_at = excluded.created_at, kind = excluded.kind,
                 last_seen_at = NULL, revoked_at = NULL
             WHERE gateways.revoked_at IS NOT NULL",
        )
        .bind(name)
        .bind(digest)
        .bind(now)
        .bind(kind.as_str())
        .execute(self.connection())
        .await?;
        Ok(if enrolled.rows_affected() == 0 { Err(NotEnrolled::Exists) } else { Ok(()) })
    }

    /// Puts a gateway or service on record with the credential in a file of ours. A revoked one stays revoked until its
    /// file has another, and a gateway does not become a service.
    pub(crate) async fn enrol_file(&mut self, kind: Kind, name: &str, digest: &str) -> Result<bool, StoreError> {
        let now = self.now().0;
        let enrolled = query(
            "INSERT INTO gateways (name, digest, created_at, kind) VALUES ($1, $2, $3, $4)
             ON CONFLICT (name) DO UPDATE
             SET digest = excluded.digest, created_at = excluded.created_at, last_seen_at = NULL, revoked_at = NULL
             WHERE gateways.digest <> excluded.digest AND gateways.kind = excluded.kind",
        )
        .bind(name)
        .bind(digest)
        .bind(now)
        .bind(kind.as_str())
        .execute(self.connection())
        .await?;
        Ok(enrolled.rows_affected() > 0)
    }

    /// Refuses a credential from now on. Whether there was one.
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
