//! Gateways and services with a credential of their own, and the generations of the keys of gateways.

use chassis::sql::{Connection, Found, RowPlace, query, query_as, query_scalar};
use contract::keyring::{GATEWAYS_WITH_KEYS_MAX, GENERATIONS_MAX};
use contract::time::{UnixMillis, UnixSeconds};

use super::processes::forget_processes_of;
use super::rows::{self, Columns, Stored, Table};
use super::{Store, StoreError, Write};
use crate::feed::Credential;

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

/// Gateways and services on record. For one more, the one that was revoked first is forgotten; its credential is never taken
/// again.
pub(crate) const GATEWAYS_MAX: i64 = 1_024;

chassis::record! {
    /// A gateway or service on record.
    #[derive(Clone, Debug)]
    pub(crate) struct Gateway {
        pub(crate) name: String,
        pub(crate) digest: String,
        /// One of [`Kind`]'s words.
        pub(crate) kind: String,
        pub(crate) created_at: i64,
        /// The file that the credential was read from; `None` for one that the API made.
        pub(crate) file: Option<String>,
        pub(crate) last_seen_at: Option<i64>,
        pub(crate) revoked_at: Option<i64>,
    }
}

impl Stored for Gateway {
    type Value = Self;

    fn place(&self) -> RowPlace {
        rows::place(Table::Gateways, &self.name, "")
    }

    fn read(mut self, columns: &mut Columns) -> Option<Self> {
        // No credential is good whose end cannot be read.
        if columns.unreadable() == Some("revoked_at") {
            self.revoked_at = Some(0);
        }
        Some(self)
    }
}

chassis::record! {
    /// What is on record under a name.
    struct Known {
        digest: String,
        kind: String,
        file: Option<String>,
        revoked_at: Option<i64>,
    }
}

chassis::record! {
    struct CredentialRow {
        name: String,
        digest: String,
    }
}

impl Stored for CredentialRow {
    type Value = Credential;

    const IS_PART: bool = true;

    fn place(&self) -> RowPlace {
        rows::place(Table::Gateways, &self.name, "")
    }

    fn read(self, columns: &mut Columns) -> Option<Credential> {
        columns.unreadable().is_none().then_some(Credential { gateway: self.name, digest: self.digest })
    }
}

chassis::record! {
    struct GenerationRow {
        number: i64,
        sealed: String,
        signs_from: i64,
    }
}

impl Stored for GenerationRow {
    type Value = SealedGeneration;

    fn place(&self) -> RowPlace {
        rows::place(Table::GatewayKeys, self.number.to_string(), "")
    }

    fn read(self, columns: &mut Columns) -> Option<SealedGeneration> {
        let Self { number, sealed, signs_from } = self;
        if !(0..=GENERATION_MAX).contains(&number) {
            columns.bad("number", format!("no generation was ever given the number {number}"));
        }
        let signs_from = UnixSeconds(signs_from);
        columns.unreadable().is_none().then_some(SealedGeneration { number, sealed, signs_from })
    }
}

/// The highest number that a generation can have: numbers are seconds since the Unix epoch, and the next one after those given.
const GENERATION_MAX: i64 = 1 << 40;

/// A generation of keys as it rests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SealedGeneration {
    pub(crate) number: i64,
    pub(crate) sealed: String,
    pub(crate) signs_from: UnixSeconds,
}

/// A credential that is to be put on record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enrolment<'a> {
    pub(crate) kind: Kind,
    pub(crate) name: &'a str,
    /// SHA-256 of the credential, in hexadecimal.
    pub(crate) digest: &'a str,
    /// The file that the credential was read from; `None` for one that the API has just made.
    pub(crate) file: Option<&'a str>,
}

/// Why a credential is not put on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotEnrolled {
    /// The name has another credential, which is good and was not read from a file.
    Exists,
    /// The name belongs to a gateway, and the file is a service's, or the other way round.
    OtherKind,
    /// The same credential is on record under this other name.
    Doubled(String),
    /// The credential was revoked, or another one took its place.
    Revoked,
    /// There are [`GATEWAYS_MAX`] whose credentials are good, or [`GATEWAYS_WITH_KEYS_MAX`] gateways whose credentials are good.
    TooMany,
}

/// What was revoked.
#[derive(Clone, Debug)]
pub(crate) struct Revoked {
    /// The file that the credential was read from, as this service saw it; `None` for one that the API made.
    pub(crate) file: Option<String>,
}

impl Store {
    /// All on record, by name.
    pub(crate) async fn gateways(&self) -> Result<Vec<Gateway>, StoreError> {
        let found = query_as(
            "SELECT name, digest, kind, created_at, file, last_seen_at, revoked_at FROM gateways ORDER BY name LIMIT $1",
        );
        let found: Vec<Found<Gateway>> = found.bind(GATEWAYS_MAX).fetch_all(self.reader()).await?;
        Ok(rows::each(self.reader(), found))
    }

    /// The gateway, or the service, whose credential has this digest, unless it was revoked. A row with an unreadable name
    /// is no credential.
    pub(crate) async fn hear(&self, kind: Kind, digest: &str, now: UnixMillis) -> Result<Option<String>, StoreError> {
        let found = query_as("SELECT name FROM gateways WHERE digest = $1 AND kind = $2 AND revoked_at IS NULL");
        let found: Option<Found<(String,)>> =
            found.bind(digest).bind(kind.as_str()).fetch_optional(self.reader()).await?;
        let Some(Found { row: (name,), bad: None }) = found else { return Ok(None) };
        self.note_use("UPDATE gateways SET last_seen_at = $2 WHERE digest = $1", digest, now);
        Ok(Some(name))
    }

    /// The gateways whose credentials are good, by name.
    pub(crate) async fn credentials_of_gateways(&self) -> Result<Vec<Credential>, StoreError> {
        let found: Vec<Found<CredentialRow>> = query_as(
            "SELECT name, digest FROM gateways WHERE kind = 'gateway' AND revoked_at IS NULL ORDER BY name LIMIT $1",
        )
        .bind(GATEWAYS_WITH_KEYS_MAX)
        .fetch_all(self.reader())
        .await?;
        Ok(rows::each(self.reader(), found))
    }

    /// The generations of keys, the newest first.
    pub(crate) async fn generations(&self) -> Result<Vec<SealedGeneration>, StoreError> {
        read_generations(&mut self.reader().acquire().await?).await
    }
}

async fn read_generations(connection: &mut Connection) -> Result<Vec<SealedGeneration>, StoreError> {
    let found: Vec<Found<GenerationRow>> =
        query_as("SELECT number, sealed, signs_from FROM gateway_keys ORDER BY number DESC")
            .fetch_all(&mut *connection)
            .await?;
    Ok(rows::each(connection, found))
}

impl Write {
    /// Puts a credential on record; whether it is new there. The API replaces a credential that is revoked; a file also one
    /// that came from a file. No credential that was ever revoked or replaced is taken again.
    pub(crate) async fn enrol(&mut self, new: &Enrolment<'_>) -> Result<Result<bool, NotEnrolled>, StoreError> {
        if self.was_revoked(new.digest).await? {
            return Ok(Err(NotEnrolled::Revoked));
        }
        let holder = query_as("SELECT name FROM gateways WHERE digest = $1 AND name <> $2");
        let holder: Option<Found<(String,)>> =
            holder.bind(new.digest).bind(new.name).fetch_optional(self.connection()).await?;
        if let Some(Found { row: (holder,), .. }) = holder {
            return Ok(Err(NotEnrolled::Doubled(holder)));
        }
        let known = query_as("SELECT digest, kind, file, revoked_at FROM gateways WHERE name = $1");
        let known: Option<Found<Known>> = known.bind(new.name).fetch_optional(self.connection()).await?;
        // A record that cannot be read is replaced: no credential that was revoked comes in by that.
        let (is_bad, known) = known.map(|found| (found.bad.is_some(), found.row)).unzip();
        match &known {
            Some(_) if is_bad == Some(true) => {}
            None if !self.has_room().await? => return Ok(Err(NotEnrolled::TooMany)),
            Some(known) if new.file.is_some() && known.kind != new.kind.as_str() => {
                return Ok(Err(NotEnrolled::OtherKind));
            }
            Some(known) if known.revoked_at.is_none() => {
                if known.digest == new.digest {
                    self.note_file(new).await?;
                    return Ok(Ok(false));
                }
                if new.file.is_none() || known.file.is_none() {
                    return Ok(Err(NotEnrolled::Exists));
                }
            }
            _ => {}
        }
        if new.kind == Kind::Gateway && self.count_good_gateways(new.name).await? >= GATEWAYS_WITH_KEYS_MAX {
            return Ok(Err(NotEnrolled::TooMany));
        }
        if known.as_ref().is_some_and(|known| known.revoked_at.is_some()) {
            // One that was heard while its credential was revoked.
            forget_processes_of(self.connection(), new.name).await?;
        }
        // What is replaced is not taken again either.
        if known.is_none_or(|known| known.digest != new.digest) {
            self.retire(new.name).await?;
        }
        rows::forget(self.connection(), &rows::place(Table::Gateways, new.name, ""));
        let now = self.now().0;
        query(
            "INSERT INTO gateways (name, digest, created_at, kind, file) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (name) DO UPDATE
             SET digest = excluded.digest, created_at = excluded.created_at, kind = excluded.kind, file = excluded.file,
                 last_seen_at = NULL, revoked_at = NULL",
        )
        .bind(new.name)
        .bind(new.digest)
        .bind(now)
        .bind(new.kind.as_str())
        .bind(new.file)
        .execute(self.connection())
        .await?;
        Ok(Ok(true))
    }

    /// Whether there is room for one more, if need be in place of the one that was revoked first.
    async fn has_room(&mut self) -> Result<bool, StoreError> {
        let count: i64 = query_scalar("SELECT COUNT(*) FROM gateways").fetch_one(self.connection()).await?;
        if count < GATEWAYS_MAX {
            return Ok(true);
        }
        let forgotten = query(
            "DELETE FROM gateways WHERE name =
             (SELECT name FROM gateways WHERE revoked_at IS NOT NULL ORDER BY CAST(revoked_at AS BIGINT), name LIMIT 1)",
        );
        Ok(forgotten.execute(self.connection()).await?.rows_affected() > 0)
    }

    async fn count_good_gateways(&mut self, beside: &str) -> Result<i64, StoreError> {
        let count =
            query_scalar("SELECT COUNT(*) FROM gateways WHERE kind = 'gateway' AND revoked_at IS NULL AND name <> $1");
        Ok(count.bind(beside).fetch_one(self.connection()).await?)
    }

    async fn was_revoked(&mut self, digest: &str) -> Result<bool, StoreError> {
        let count = query_scalar("SELECT COUNT(*) FROM revoked_credentials WHERE digest = $1");
        let count: i64 = count.bind(digest).fetch_one(self.connection()).await?;
        Ok(count > 0)
    }

    /// Notes which file has the credential that is on record.
    async fn note_file(&mut self, new: &Enrolment<'_>) -> Result<(), StoreError> {
        query("UPDATE gateways SET file = $2 WHERE name = $1")
            .bind(new.name)
            .bind(new.file)
            .execute(self.connection())
            .await?;
        Ok(())
    }

    /// Notes for good that the credential of this name is not to be taken again.
    async fn retire(&mut self, name: &str) -> Result<(), StoreError> {
        let now = self.now().0;
        query(
            "INSERT INTO revoked_credentials (digest, name, kind, revoked_at)
             SELECT digest, name, kind, $2 FROM gateways WHERE name = $1
             ON CONFLICT (digest) DO NOTHING",
        )
        .bind(name)
        .bind(now)
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Refuses a credential from now on, for good. `None` when the name has no credential that is good.
    pub(crate) async fn revoke_gateway(&mut self, name: &str) -> Result<Option<Revoked>, StoreError> {
        let now = self.now().0;
        let file = query_as("SELECT file FROM gateways WHERE name = $1 AND revoked_at IS NULL");
        let file: Option<Found<(Option<String>,)>> = file.bind(name).fetch_optional(self.connection()).await?;
        let Some(Found { row: (file,), .. }) = file else { return Ok(None) };
        self.retire(name).await?;
        query("UPDATE gateways SET revoked_at = $2 WHERE name = $1")
            .bind(name)
            .bind(now)
            .execute(self.connection())
            .await?;
        Ok(Some(Revoked { file }))
    }

    /// The generations of keys, the newest first.
    pub(crate) async fn generations(&mut self) -> Result<Vec<SealedGeneration>, StoreError> {
        read_generations(self.connection()).await
    }

    /// Puts other keys in the place of those of a generation.
    pub(crate) async fn replace_generation(&mut self, generation: &SealedGeneration) -> Result<(), StoreError> {
        query("UPDATE gateway_keys SET sealed = $2 WHERE number = $1")
            .bind(generation.number)
            .bind(&generation.sealed)
            .execute(self.connection())
            .await?;
        Ok(())
    }

    /// Adds a generation of keys and forgets those that are too many; all others if they are `compromised`.
    pub(crate) async fn add_generation(
        &mut self,
        generation: &SealedGeneration,
        compromised: bool,
    ) -> Result<(), StoreError> {
        let kept = if compromised { 0 } else { i64::try_from(GENERATIONS_MAX).unwrap_or(i64::MAX) - 1 };
        // Numbers that were never given, and what is no number, are not among them.
        query(
            "DELETE FROM gateway_keys WHERE number NOT IN
             (SELECT number FROM gateway_keys WHERE number BETWEEN 0 AND $2 ORDER BY number DESC LIMIT $1)",
        )
        .bind(kept)
        .bind(GENERATION_MAX)
        .execute(self.connection())
        .await?;
        rows::forget_all(self.connection(), Table::GatewayKeys, "");
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
