//! What a database needs that was put back from a backup, before a service opens it.
//!
//! It knows less than the lost one did, so it counts on above every number that was ever given out, and each gateway is sent
//! everything anew. Sessions and links of the dashboard end, and gateways are given new keys at their next connection.
//!
//! What was revoked or removed since the backup is good again. Where the lost database can be read and is a later state of the
//! backup (it has the change that was the backup's newest), the two are compared, and what is good in the backup alone is
//! withdrawn again. Otherwise everything that is good is listed, for operators to look at. Without `lost` nothing is guessed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chassis::clock::Clock;
use chassis::sql::{Begin, Connection, Database, Found, Place, query, query_as, query_scalar};
use contract::feed::Entity;
use contract::hostname::Hostname;
use contract::key::KeyId;
use contract::site::Serves;
use contract::time::{UnixMillis, UnixSeconds};
use serde::Serialize;

use crate::project::ProjectRef;
use crate::publish;
use crate::store::{Store, StoreError, Write, domains, keys, projects};

/// How long reading or writing all of a database may take.
const TIME_MAX: Duration = Duration::from_mins(10);

/// Names of one kind that are reported; all are counted.
const NAMES_MAX: usize = 20;

contract::words! {
    /// What lets somebody in, or is served.
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
        /// Projects that are there or kept: what is missing was erased.
        Data = "data",
    }
}

/// What is good of each kind: what identifies it, the project it belongs to, and what people call it. `$1` is now.
const GOOD: [(Kind, &str); 7] = [
    (
        Kind::Credential,
        "SELECT digest, '', name FROM credentials WHERE kind <> 'operator' AND revoked_at IS NULL AND $1 > 0",
    ),
    // The command line's has no end: it is good while the platform's secret is what it derives from.
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

/// When keys that are good end, of those that do.
const ENDS: &str = "SELECT id, project, expires_at FROM api_keys WHERE revoked_at IS NULL AND expires_at > $1 / 1000";

/// Until when removed projects are kept.
const KEPT: &str = "SELECT id, erase_at FROM projects WHERE erase_at IS NOT NULL";

/// Credentials that are never taken again.
const REVOKED: &str =
    "SELECT digest, name, kind, made_by, created_at, revoked_at FROM credentials WHERE revoked_at IS NOT NULL";
const REVOKE: &str = "INSERT INTO credentials (digest, name, kind, made_by, created_at, revoked_at)
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (digest) DO NOTHING";
const RETIRE: &str = "UPDATE credentials SET revoked_at = $2 WHERE digest = $1 AND revoked_at IS NULL";

/// What [`REVOKED`] finds.
type Revoked = (String, String, String, Option<String>, i64, i64);

/// What must not outlive a restore.
const ENDED: [&str; 3] = ["DELETE FROM dashboard_sessions", "DELETE FROM dashboard_links", "DELETE FROM gateway_keys"];

/// The newest revision, its mark, and when the last change was made.
const NEWEST: &str =
    "SELECT current, (SELECT mark FROM changes WHERE revision = current), (SELECT MAX(at_ms) FROM changes)
    FROM revision_counter WHERE id = 1";

/// What became of what was withdrawn between the backup and the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is withdrawn again.
    Withdrawn,
    /// It is good again, as the operator wanted.
    Back,
    /// It is good again, and cannot be told from the rest: the databases could not be compared.
    Unknown,
}

/// Things of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Counted {
    /// How many there are.
    pub count: usize,
    /// The first of them by name, at most twenty.
    pub names: Vec<String>,
}

/// What a restored database brings back.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What the lists are of: what was withdrawn since the backup, or everything that is good.
    pub outcome: Outcome,
    /// Why the databases could not be compared.
    pub why: Option<String>,
    /// When the restored database was changed last; milliseconds.
    pub changed_at: i64,
    /// When the lost one was.
    pub lost_changed_at: Option<i64>,
    /// By kind; only kinds of which there is something.
    pub things: BTreeMap<Kind, Counted>,
}

/// Everything that is good: its project and its name, by kind and identity.
type Good = BTreeMap<(Kind, String), (String, String)>;

/// What the lost database says.
struct Lost {
    good: Good,
    ends: Vec<(String, String, i64)>,
    kept: HashMap<String, i64>,
    revoked: Vec<Revoked>,
}

/// Makes a database that was put back ready for use. `lost` is the one that it replaces, or why that cannot be read; with
/// `bring_back`, what was withdrawn since the backup is listed, and comes back.
///
/// # Errors
/// When the database is not one of ours, a service uses it, or it does not answer. It may be tried again.
pub async fn finish_restore(
    restored: &Place,
    lost: anyhow::Result<Place>,
    bring_back: bool,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Report> {
    Database::may_be_taken(restored).await?;
    let store = Store::open(restored, clock).await?;
    let mut write = store.write().await?;
    let now = write.now();
    write.connection().allow(TIME_MAX).await?;
    let newest: (i64, i64, i64) = query_as(NEWEST).fetch_one(write.connection()).await?;
    let (mut good, _) = good(write.connection(), now).await.context("reading the restored database")?;
    let mut lost_newest = None;
    let compared = match lost {
        Ok(place) => read_lost(&place, newest, now, &mut lost_newest).await,
        Err(why) => Err(why),
    };
    let (outcome, why, things) = match compared {
        Ok(lost) => {
            let since: Good = good.into_iter().filter(|(thing, _)| !lost.good.contains_key(thing)).collect();
            if bring_back {
                (Outcome::Back, None, since)
            } else {
                withdraw(&mut write, &lost, &since).await.context("withdrawing what was withdrawn since the backup")?;
                (Outcome::Withdrawn, None, since)
            }
        }
        Err(why) => {
            good.retain(|(kind, _), _| *kind != Kind::Data);
            (Outcome::Unknown, Some(format!("{why:#}")), good)
        }
    };
    for statement in ENDED {
        query(statement).execute(write.connection()).await?;
    }
    write.replace_earlier(lost_newest.map_or(0, |(current, _)| current)).await?;
    write.commit().await?;
    store.close().await;
    let (changed_at, lost_changed_at) = (newest.2, lost_newest.map(|(_, at)| at));
    Ok(Report { outcome, why, changed_at, lost_changed_at, things: counted(things) })
}

/// Reads a lost database, if it is a later state of the one whose newest change this is. What is the newest of its own is noted.
async fn read_lost(
    place: &Place,
    (revision, mark, _): (i64, i64, i64),
    now: UnixMillis,
    newest: &mut Option<(i64, i64)>,
) -> anyhow::Result<Lost> {
    let pool = Database::as_it_is(place);
    let mut reading = pool.begin(Begin::Snapshot).await?;
    reading.allow(TIME_MAX).await?;
    let (current, _, changed_at): (i64, i64, i64) = query_as(NEWEST).fetch_one(&mut reading).await?;
    *newest = Some((current, changed_at));
    let same = query_scalar("SELECT COUNT(*) FROM changes WHERE revision = $1 AND mark = $2");
    let same: i64 = same.bind(revision).bind(mark).fetch_one(&mut reading).await?;
    anyhow::ensure!(same > 0, "it does not have the newest change of the backup, so it is no later state of it");
    let (good, unreadable) = good(&mut reading, now).await?;
    anyhow::ensure!(unreadable == 0, "{unreadable} of its rows cannot be read");
    let lost = Lost {
        good,
        ends: query_as(ENDS).bind(now.0).fetch_all(&mut reading).await?,
        kept: query_as::<(String, i64)>(KEPT).fetch_all(&mut reading).await?.into_iter().collect(),
        revoked: query_as(REVOKED).fetch_all(&mut reading).await?,
    };
    drop(reading);
    pool.close().await;
    Ok(lost)
}

/// Everything that is good, and how many rows cannot be read.
async fn good(connection: &mut Connection, now: UnixMillis) -> Result<(Good, usize), StoreError> {
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

/// Withdraws what was withdrawn from the lost database.
async fn withdraw(write: &mut Write, lost: &Lost, since: &Good) -> anyhow::Result<()> {
    let now = write.now();
    let platform = platform(write.connection()).await?;
    for ((kind, id), (of, name)) in since {
        match kind {
            Kind::Credential | Kind::Token => {
                query(RETIRE).bind(id).bind(now.0).execute(write.connection()).await?;
            }
            Kind::Project => {
                let Some(mut project) = projects::find_named(write.connection(), &name.parse()?).await? else {
                    continue;
                };
                let platform = platform.as_ref().context("it has no host of the platform")?;
                let erase_at = UnixMillis(lost.kept.get(id).copied().unwrap_or(now.0));
                publish::withdraw_project(write, platform, &mut project, erase_at).await?;
            }
            Kind::Key => end_key(write, of, id, None).await?,
            Kind::Name => {
                // Domains of a project that is withdrawn are gone with it.
                let Some(project) = projects::find_by_uid(write.connection(), &of.parse()?).await? else { continue };
                let domain = domains::find_domain(write.connection(), &project.id, &name.parse()?).await?;
                if let Some(domain) = domain {
                    publish::forget(write, &domain, &project.salt).await?;
                }
            }
            Kind::Data => {
                let project = ProjectRef { uid: id.parse()?, name: name.parse()? };
                projects::erase(write.connection(), &project, now).await?;
            }
        }
    }
    let known: Vec<(String, String, i64)> = query_as(ENDS).bind(now.0).fetch_all(write.connection()).await?;
    let known: BTreeSet<_> = known.into_iter().collect();
    for end in lost.ends.iter().filter(|end| !known.contains(end)) {
        end_key(write, &end.1, &end.0, Some(UnixSeconds(end.2))).await?;
    }
    for (digest, name, kind, made_by, created_at, revoked_at) in &lost.revoked {
        let revoke = query(REVOKE).bind(digest).bind(name).bind(kind).bind(made_by.as_deref());
        revoke.bind(*created_at).bind(*revoked_at).execute(write.connection()).await?;
    }
    Ok(())
}

/// Revokes a key, or has it end at this moment.
async fn end_key(write: &mut Write, project: &str, id: &str, ends: Option<UnixSeconds>) -> anyhow::Result<()> {
    let id: KeyId = id.parse()?;
    let Some(project) = projects::find_ref(write.connection(), &project.parse()?).await? else { return Ok(()) };
    let Some(mut key) = keys::find_key(write.connection(), &project, &id).await? else { return Ok(()) };
    if key.revoked_at.is_some() {
        return Ok(());
    }
    match ends {
        None => key.revoked_at = Some(write.now()),
        Some(_) => key.expires_at = ends,
    }
    keys::save_key(write.connection(), &key).await?;
    match ends {
        Some(_) if key.unreadable.is_none() => write.put(Entity::Key(key.published())).await?,
        _ => keys::withdraw(write, &key).await?,
    }
    Ok(())
}

/// The platform's domain, by the sites of its own.
async fn platform(connection: &mut Connection) -> Result<Option<Hostname>, StoreError> {
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

/// The things by kind, counted; data that comes back is its project.
fn counted(things: Good) -> BTreeMap<Kind, Counted> {
    let mut all: BTreeMap<Kind, BTreeSet<(String, String)>> = BTreeMap::new();
    for ((kind, _), (of, name)) in things {
        let kind = if kind == Kind::Data { Kind::Project } else { kind };
        all.entry(kind).or_default().insert((name, of));
    }
    let names = |set: BTreeSet<(String, String)>| Counted {
        count: set.len(),
        names: set.into_iter().take(NAMES_MAX).map(|(name, _)| name).collect(),
    };
    all.into_iter().map(|(kind, set)| (kind, names(set))).collect()
}
