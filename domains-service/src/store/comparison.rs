//! Compares two databases: one restored from a backup, and the lost one that it replaces.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use chassis::sql::{Begin, Connection, Database, Found, Location, query, query_as, query_scalar};
use contract::feed::Entity;
use contract::hostname::Hostname;
use contract::site::Serves;
use contract::time::UnixMillis;
use serde::{Deserialize, Serialize};

use super::Result;

/// Maximum duration of reading or writing a whole database.
pub(crate) const TIME_MAX: Duration = Duration::from_mins(10);

contract::words! {
    /// The kinds of entities that grant access or are served.
    pub enum Kind {
        /// Credentials of gateways and services.
        Credential = "credentials",
        /// Tokens of operators.
        Token = "tokens",
        /// Projects.
        Project = "projects",
        /// API keys.
        Key = "keys",
        /// Custom domains.
        Name = "names",
        /// Present and restorable projects; a missing one was erased.
        Data = "data",
    }
}

/// The valid entities of each kind: identity, project, and displayed name. `$1` is now.
const GOOD: [(Kind, &str); 7] = [
    (
        Kind::Credential,
        "SELECT digest, '', name FROM credentials WHERE kind <> 'operator' AND revoked_at IS NULL AND $1 > 0",
    ),
    // The command line's credential has no expiry: it is valid while it derives from the platform's secret.
    (
        Kind::Token,
        "SELECT digest, '', name FROM credentials WHERE kind = 'operator' AND revoked_at IS NULL AND expires_at > $1",
    ),
    (Kind::Project, "SELECT id, id, name FROM projects WHERE removed_at IS NULL AND $1 > 0"),
    (
        Kind::Key,
        "SELECT k.id, k.project, p.name || ' ' || k.id FROM api_keys k JOIN projects p ON p.id = k.project
         WHERE k.revoked_at IS NULL AND p.removed_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $1 / 1000)",
    ),
    (Kind::Name, "SELECT name || ' ' || project, project, name FROM domains WHERE removal IS NULL AND $1 > 0"),
    // A name that another project has proven since.
    (Kind::Name, "SELECT name || ' held by ' || project, project, name FROM holders WHERE $1 > 0"),
    (Kind::Data, "SELECT id, id, name FROM projects WHERE $1 > 0"),
];

/// The expiry of valid keys that have one.
const ENDS: &str = "SELECT id, project, expires_at FROM api_keys WHERE revoked_at IS NULL AND expires_at > $1 / 1000";

/// Until when removed projects are kept.
const KEPT: &str = "SELECT id, erase_at FROM projects WHERE erase_at IS NOT NULL";

/// Credentials that are never accepted again, except tokens that had expired at `$1`; those revoked last come first.
pub(crate) const REVOKED: &str = "SELECT digest, name, kind, made_by, created_at, revoked_at FROM credentials
    WHERE revoked_at IS NOT NULL AND (expires_at IS NULL OR expires_at > $1)
    ORDER BY CAST(revoked_at AS BIGINT) DESC";
const REVOKE: &str = "INSERT INTO credentials (digest, name, kind, made_by, created_at, revoked_at)
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (digest) DO NOTHING";
const RETIRE: &str = "UPDATE credentials SET revoked_at = $2 WHERE digest = $1 AND revoked_at IS NULL";

chassis::record! {
    /// A row of [`REVOKED`].
    #[derive(Clone, Debug, Serialize, Deserialize)]
    pub(crate) struct Revocation {
        pub(crate) digest: String,
        pub(crate) name: String,
        pub(crate) kind: String,
        made_by: Option<String>,
        created_at: i64,
        revoked_at: i64,
    }
}

/// Rows that must not survive a restore.
const ENDED: [&str; 3] = ["DELETE FROM dashboard_sessions", "DELETE FROM dashboard_links", "DELETE FROM gateway_keys"];

/// The newest revision, its mark, and when the last change was made.
const NEWEST: &str =
    "SELECT current, (SELECT mark FROM changes WHERE revision = current), (SELECT MAX(at_ms) FROM changes)
    FROM revision_counter WHERE id = 1";

/// All valid entities: project and name, by kind and identity.
pub(crate) type Good = BTreeMap<(Kind, String), (String, String)>;

/// The content of the lost database.
pub(crate) struct Lost {
    pub(crate) good: Good,
    pub(crate) ends: Vec<(String, String, i64)>,
    pub(crate) kept: HashMap<String, i64>,
    pub(crate) revoked: Vec<Revocation>,
}

/// Reads a lost database if it is a later state of the one with this newest change, and records its newest change.
pub(crate) async fn read_lost(
    location: &Location,
    (revision, mark, _): (i64, i64, i64),
    now: UnixMillis,
    newest: &mut Option<(i64, i64)>,
) -> anyhow::Result<Lost> {
    let pool = Database::as_it_is(location);
    let mut reading = pool.begin(Begin::Snapshot).await?;
    reading.allow(TIME_MAX).await?;
    let (current, _, changed_at) = self::newest(&mut reading).await?;
    *newest = Some((current, changed_at));
    let same = query_scalar("SELECT COUNT(*) FROM changes WHERE revision = $1 AND mark = $2");
    let same: i64 = same.bind((revision, mark)).fetch_one(&mut reading).await?;
    anyhow::ensure!(same > 0, "it lacks the backup's newest change, so it is not a later state of the same database");
    let (good, unreadable) = good(&mut reading, now).await?;
    anyhow::ensure!(unreadable == 0, "{unreadable} of its rows cannot be read");
    let lost = Lost {
        good,
        ends: ends(&mut reading, now).await?,
        kept: query_as::<(String, i64)>(KEPT).fetch_all(&mut reading).await?.into_iter().collect(),
        revoked: query_as(REVOKED).bind(i64::MIN).fetch_all(&mut reading).await?,
    };
    drop(reading);
    pool.close().await;
    Ok(lost)
}

/// All valid entities, and the number of unreadable rows.
pub(crate) async fn good(connection: &mut Connection, now: UnixMillis) -> Result<(Good, usize)> {
    let (mut good, mut unreadable) = (Good::new(), 0);
    for (kind, statement) in GOOD {
        let found = query_as(statement).bind(now.0).fetch_all(&mut *connection).await?;
        for Found { row: (id, of, name), bad } in found {
            match bad {
                None => drop(good.insert((kind, id), (of, name))),
                Some(_) => unreadable += 1,
            }
        }
    }
    Ok((good, unreadable))
}

/// The newest revision, its mark, and when the last change was made.
pub(crate) async fn newest(connection: &mut Connection) -> Result<(i64, i64, i64)> {
    Ok(query_as(NEWEST).fetch_one(connection).await?)
}

/// Valid keys with an expiry: ids, projects and expiries.
pub(crate) async fn ends(connection: &mut Connection, now: UnixMillis) -> Result<Vec<(String, String, i64)>> {
    Ok(query_as(ENDS).bind(now.0).fetch_all(connection).await?)
}

/// Ends a credential that is never accepted again: its row, or a new one.
pub(crate) async fn revoke(connection: &mut Connection, revoked: &Revocation) -> Result<()> {
    let Revocation { digest, name, kind, made_by, created_at, revoked_at } = revoked;
    query(RETIRE).bind((digest, *revoked_at)).execute(&mut *connection).await?;
    let revoke = query(REVOKE).bind((digest, name, kind, made_by.as_deref()));
    revoke.bind((*created_at, *revoked_at)).run(connection).await
}

/// Ends everything that must not survive a restore: sessions and links of the dashboard, and the keys of the gateways.
pub(crate) async fn end_sessions_and_keys(connection: &mut Connection) -> Result<()> {
    for statement in ENDED {
        query(statement).execute(&mut *connection).await?;
    }
    Ok(())
}

/// The platform's domain, by the sites of its own.
pub(crate) async fn platform(connection: &mut Connection) -> Result<Option<Hostname>> {
    let found = query_as("SELECT body FROM entities WHERE kind = 'site' AND body LIKE '%\"platform\":{%'");
    let found: Vec<Found<(String,)>> = found.fetch_all(connection).await?;
    let parent = |found: &Found<(String,)>| match serde_json::from_str(&found.row.0) {
        Ok(Entity::Site(site)) if matches!(site.serves, Serves::Platform { .. }) => {
            site.hostname.parent()?.parse().ok()
        }
        _ => None,
    };
    Ok(found.iter().find_map(parent))
}
