//! Credentials of gateways, services and operators, the command line among them. Rows are never deleted, so a revoked
//! or replaced credential is never accepted again, and records made with a credential can be found after its end.

use chassis::sql::{Found, query, query_as, query_scalar};
use contract::keyring::GATEWAYS_WITH_KEYS_MAX;
use contract::time::UnixMillis;

use super::processes::forget_processes_of;
use super::rows::{self, Columns, ReadKey, Stored, Table};
use super::{Result, Store, StoreError, Write};

contract::words! {
    /// The kind of a credential's holder.
    pub(crate) enum Kind {
        /// A gateway.
        Gateway = "gateway",
        /// A service behind gateways that keeps data of projects.
        Service = "service",
        /// A person, a script, or the command line.
        Operator = "operator",
    }
}

/// The operator name of the command line, whose credential derives from the platform's secret.
pub(crate) const COMMAND_LINE: &str = "command-line";

/// Maximum of valid credentials of services, and of valid or expired ones of operators. Of gateways:
/// [`GATEWAYS_WITH_KEYS_MAX`].
pub(crate) const GOOD_OF_A_KIND_MAX: i64 = 1_024;

/// Maximum of listed credentials: all valid ones, then those that were revoked last.
const LISTED_MAX: i64 = 4_096;

/// Characters of a digest by which operators find its row.
const SHOWN_OF_DIGEST: usize = 8;

/// The credential of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    /// SHA-256 of it, in hexadecimal.
    pub(crate) digest: String,
    pub(crate) expires_at: Option<UnixMillis>,
}

impl Credential {
    pub(crate) fn is_current(&self, now: UnixMillis) -> bool {
        self.expires_at.is_none_or(|end| now < end)
    }

    /// The full name of a gateway's node: a gateway can name only its own nodes.
    pub(crate) fn node(&self, node: &str) -> String {
        format!("{}/{node}", self.name)
    }
}

/// A credential in lists.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) credential: Credential,
    /// The file that it was read from.
    pub(crate) file: Option<String>,
    /// The operator who made it; `None` if it was read from a file.
    pub(crate) made_by: Option<String>,
    pub(crate) created_at: UnixMillis,
    pub(crate) last_used_at: Option<UnixMillis>,
    pub(crate) revoked_at: Option<UnixMillis>,
}

/// A credential to record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enrolment<'a> {
    pub(crate) kind: Kind,
    pub(crate) name: &'a str,
    /// SHA-256 of the credential, in hexadecimal.
    pub(crate) digest: &'a str,
    pub(crate) expires_at: Option<UnixMillis>,
    pub(crate) from: Origin<'a>,
}

/// The origin of a credential.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin<'a> {
    /// It was read from this file.
    File(&'a str),
    /// An operator made it, whose credential has this digest.
    Maker(&'a str),
}

/// Why a credential is not registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotEnrolled {
    /// The name has another valid credential, and one of the two is not from a file.
    Exists,
    /// The name belongs to a service, and this is a gateway, or the other way round.
    OtherKind,
    /// The same credential is on record under this other name.
    Doubled(String),
    /// The credential was revoked or replaced.
    Revoked,
    /// The maximum of valid credentials of this kind is reached.
    TooMany,
}

impl Credential {
    fn of(row: &mut Columns<'_>) -> Option<Self> {
        let kind = row.word("kind")?;
        let expires_at = row.time_if_any("expires_at");
        Some(Self { kind, name: row.text("name"), digest: row.text("digest"), expires_at })
    }
}

impl Stored for Credential {
    const IS_PART: bool = true;
    const KEY: ReadKey = |row| {
        let digest: String = row.text("digest").chars().take(SHOWN_OF_DIGEST).collect();
        rows::key(Table::Credentials, format!("{} {digest}", row.text("name")), "")
    };

    /// A row with an unreadable column is no credential.
    fn read(row: &mut Columns<'_>) -> Option<Self> {
        Self::of(row).and_then(|credential| row.whole(credential))
    }
}

impl Stored for Recorded {
    const KEY: ReadKey = Credential::KEY;

    fn read(row: &mut Columns<'_>) -> Option<Self> {
        let revoked_at = row.time_if_any("revoked_at");
        // A credential with an unreadable end is invalid.
        let revoked_at = if row.unreadable() == Some("revoked_at") { Some(UnixMillis(0)) } else { revoked_at };
        Some(Self {
            credential: Credential::of(row)?,
            file: row.get("file"),
            made_by: row.get("made_by"),
            created_at: row.time("created_at"),
            last_used_at: row.time_if_any("last_used_at"),
            revoked_at,
        })
    }
}

/// A statement that reads whole rows, each with the name of its maker.
macro_rules! recorded {
    ($rest:literal) => {
        concat!(
            "SELECT c.kind, c.name, c.digest, c.file, m.name AS made_by, c.created_at, c.expires_at, c.last_used_at, c.revoked_at
             FROM credentials c LEFT JOIN credentials m ON m.digest = c.made_by ",
            $rest
        )
    };
}

/// A statement about the valid credential of the name `$1`, where a credential of the kind `$2` is to replace it.
macro_rules! of_holder {
    ($statement:literal) => {
        concat!(
            $statement,
            " WHERE name = $1 AND revoked_at IS NULL AND (kind = $2 OR kind <> 'operator' AND $2 <> 'operator')"
        )
    };
}

impl Store {
    /// All credentials on record or those of one kind, by kind, name and age: the valid ones, and those that were
    /// revoked last.
    pub(crate) async fn credentials(&self, kind: Option<Kind>) -> Result<Vec<Recorded>> {
        let found = query_as(recorded!(
            "WHERE c.kind LIKE $1 ORDER BY c.revoked_at IS NOT NULL, c.revoked_at DESC, c.digest LIMIT $2"
        ))
        .bind((kind.map_or("%", Kind::as_str), LISTED_MAX));
        let mut all: Vec<Recorded> = rows::all(self.reader(), found).await?;
        let order = |one: &Recorded| (one.credential.kind, one.credential.name.clone(), one.created_at);
        all.sort_by_cached_key(order);
        Ok(all)
    }

    /// Valid and expired credentials, of all kinds or of one, by kind and name. Those in the file of revoked ones are
    /// not.
    pub(crate) async fn good_credentials(&self, kind: Option<Kind>) -> Result<Vec<Credential>> {
        let good = query_as(
            "SELECT kind, name, digest, expires_at FROM credentials WHERE kind LIKE $1 AND revoked_at IS NULL
             ORDER BY kind, name LIMIT $2",
        )
        .bind((kind.map_or("%", Kind::as_str), LISTED_MAX));
        let mut good: Vec<Credential> = rows::all(self.reader(), good).await?;
        good.retain(|one| !self.was_revoked(&one.digest));
        Ok(good)
    }

    /// Whether the operator of this name has a valid credential.
    pub(crate) async fn is_operator(&self, name: &str, now: UnixMillis) -> Result<bool> {
        let found: i64 = query_scalar(GOOD_OPERATOR).bind((name, now.0)).fetch_one(self.reader()).await?;
        Ok(found > 0)
    }
}

/// Number of valid credentials of the operator `$1` at `$2`: 0 or 1.
pub(super) const GOOD_OPERATOR: &str = "SELECT COUNT(*) FROM credentials WHERE kind = 'operator' AND name = $1
    AND revoked_at IS NULL AND (expires_at IS NULL OR CAST(expires_at AS BIGINT) > $2)";

impl Write {
    /// Records a credential; returns whether it is new. It replaces a revoked or expired one, and one from a file
    /// replaces one from a file. A credential that was ever revoked or replaced is never accepted again.
    pub(crate) async fn enrol(&mut self, new: &Enrolment<'_>) -> Result<Result<bool, NotEnrolled>> {
        let (file, made_by) = match new.from {
            Origin::File(file) => (Some(file), None),
            Origin::Maker(maker) => (None, Some(maker)),
        };
        let known = query_as("SELECT kind, name, revoked_at FROM credentials WHERE digest = $1");
        let known: Option<Found<(String, String, Option<i64>)>> =
            known.bind(new.digest).fetch_optional(self.connection()).await?;
        if let Some(Found { row: (kind, name, revoked_at), bad }) = known {
            return Ok(match bad {
                None if revoked_at.is_none() && name != new.name => Err(NotEnrolled::Doubled(name)),
                None if revoked_at.is_none() && kind != new.kind.as_str() => Err(NotEnrolled::OtherKind),
                None if revoked_at.is_none() => {
                    let note = query("UPDATE credentials SET file = $2 WHERE digest = $1").bind((new.digest, file));
                    note.execute(self.connection()).await?;
                    Ok(false)
                }
                _ => Err(NotEnrolled::Revoked),
            });
        }
        if let Err(why) = self.make_room(new, file).await? {
            return Ok(Err(why));
        }
        let now = self.now().0;
        query(
            "INSERT INTO credentials (digest, kind, name, file, made_by, created_at, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind((new.digest, new.kind.as_str(), new.name, file, made_by, now, new.expires_at.map(|end| end.0)))
        .execute(self.connection())
        .await?;
        Ok(Ok(true))
    }

    /// Ends the name's present credential, if the new one may replace it.
    async fn make_room(&mut self, new: &Enrolment<'_>, file: Option<&str>) -> Result<Result<(), NotEnrolled>> {
        /// Kind, file, and expiry.
        type Holder = (String, Option<String>, Option<i64>);
        let holder = query_as(of_holder!("SELECT kind, file, expires_at FROM credentials"));
        let holder: Option<Found<Holder>> =
            holder.bind((new.name, new.kind.as_str())).fetch_optional(self.connection()).await?;
        // An unreadable credential is invalid, and is replaced.
        if let Some(Found { row: (kind, other_file, expires_at), bad: None }) = &holder {
            if kind != new.kind.as_str() {
                return Ok(Err(NotEnrolled::OtherKind));
            }
            let is_over = expires_at.is_some_and(|end| end <= self.now().0);
            if !is_over && (file.is_none() || other_file.is_none()) {
                return Ok(Err(NotEnrolled::Exists));
            }
        }
        let max = if new.kind == Kind::Gateway { GATEWAYS_WITH_KEYS_MAX } else { GOOD_OF_A_KIND_MAX };
        let count =
            query_scalar("SELECT COUNT(*) FROM credentials WHERE kind = $1 AND revoked_at IS NULL AND name <> $2");
        let count: i64 = count.bind((new.kind.as_str(), new.name)).fetch_one(self.connection()).await?;
        if count >= max {
            return Ok(Err(NotEnrolled::TooMany));
        }
        if holder.is_some() {
            self.withdraw(new.kind, new.name).await?;
        } else if new.kind == Kind::Gateway {
            // Drops a process that reported while its credential was revoked.
            forget_processes_of(self.connection(), new.name).await?;
        }
        Ok(Ok(()))
    }

    /// The valid credential of this name, or else the one that was revoked last, if any.
    pub(crate) async fn last_credential(&mut self, kind: Kind, name: &str) -> Result<Option<Recorded>> {
        let found = query_as(recorded!(
            "WHERE c.kind = $1 AND c.name = $2 ORDER BY c.revoked_at IS NOT NULL, c.revoked_at DESC, c.digest LIMIT 1"
        ));
        rows::readable(self.connection(), found.bind((kind.as_str(), name))).await
    }

    /// The valid credentials that credentials of this name made, revoked ones included, and those that these made, by
    /// kind and name. With `also_revoked`, what they made and is revoked follows, as far as the list has room.
    pub(crate) async fn made_by(&mut self, kind: Kind, name: &str, also_revoked: bool) -> Result<Vec<Recorded>> {
        let found = query_as(recorded!(
            "WHERE (c.revoked_at IS NULL OR $3 > 0) AND c.digest IN
             (WITH RECURSIVE made (digest) AS
                  (SELECT digest FROM credentials WHERE made_by IN
                       (SELECT digest FROM credentials WHERE kind = $1 AND name = $2)
                   UNION
                   SELECT later.digest FROM credentials later JOIN made ON later.made_by = made.digest)
              SELECT digest FROM made)
             ORDER BY c.revoked_at IS NOT NULL, c.revoked_at DESC, c.kind, c.name LIMIT $4"
        ));
        rows::all(self.connection(), found.bind((kind.as_str(), name, i64::from(also_revoked), LISTED_MAX))).await
    }

    /// Checks in this transaction that the caller's credential is still valid: another replica may have revoked it just
    /// now.
    ///
    /// # Errors
    /// [`StoreError::ActorRevoked`] when it is not.
    pub(crate) async fn confirm(&mut self, actor: &Credential) -> Result<()> {
        let count = query_scalar("SELECT COUNT(*) FROM credentials WHERE digest = $1 AND revoked_at IS NULL");
        let count: i64 = count.bind(&actor.digest).fetch_one(self.connection()).await?;
        if count > 0 { Ok(()) } else { Err(StoreError::ActorRevoked) }
    }

    /// Ends the valid credential of this name for good, and the dashboard sessions and links that it opened.
    async fn withdraw(&mut self, kind: Kind, name: &str) -> Result<()> {
        let now = self.now().0;
        let revoke = query(of_holder!("UPDATE credentials SET revoked_at = $3"));
        revoke.bind((name, kind.as_str(), now)).execute(self.connection()).await?;
        if kind == Kind::Operator {
            for statement in [
                "DELETE FROM dashboard_sessions WHERE operator = $1",
                "DELETE FROM dashboard_links WHERE operator = $1",
            ] {
                query(statement).bind(name).execute(self.connection()).await?;
            }
        }
        Ok(())
    }

    /// Ends a credential for good. Revoking a gateway's also ends every dashboard session, because its cookie may have
    /// passed through the gateway.
    pub(crate) async fn revoke(&mut self, credential: &Credential) -> Result<()> {
        self.withdraw(credential.kind, &credential.name).await?;
        if credential.kind == Kind::Gateway {
            forget_processes_of(self.connection(), &credential.name).await?;
            for statement in ["DELETE FROM dashboard_sessions", "DELETE FROM dashboard_links"] {
                query(statement).execute(self.connection()).await?;
            }
        }
        Ok(())
    }
}
