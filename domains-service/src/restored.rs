//! Prepares a database that was restored from a backup, before a service opens it.
//!
//! The restored database lacks the last changes, so its revisions continue above every number ever given out, and each
//! gateway gets a snapshot. Dashboard sessions and sign-in links end, and gateways get new keys at their next
//! connection.
//!
//! Credentials and entities that were revoked or removed after the backup are valid again. If the lost database is
//! readable and is a later state of the backup (it has the backup's newest change), the two are compared, and
//! everything that is valid only in the backup is withdrawn again. Otherwise everything valid is listed for operators.
//! Without `lost` nothing is withdrawn.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use chassis::clock::Clock;
use chassis::sql::{Database, Location};
use contract::feed::Entity;
use contract::key::KeyId;
use contract::time::{UnixMillis, UnixSeconds};
use serde::Serialize;

use crate::project::ProjectRef;
use crate::publish;
pub use crate::store::comparison::Kind;
use crate::store::comparison::{self, Good, Lost, TIME_MAX};
use crate::store::revocations;
use crate::store::{Store, Write, domains, keys, projects};

/// Names of one kind that are reported; all are counted.
const NAMES_MAX: usize = 20;

/// The fate of everything that was withdrawn between the backup and the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is withdrawn again.
    Withdrawn,
    /// It is valid again, as the operator requested.
    Back,
    /// It is valid again and unknown, because the databases could not be compared.
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

/// Entities that become valid again with a restored database.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The content of the lists: entities that were withdrawn since the backup, or all valid ones.
    pub outcome: Outcome,
    /// Why the databases could not be compared.
    pub why: Option<String>,
    /// When the restored database was changed last; milliseconds.
    pub changed_at: i64,
    /// When the lost one was.
    pub lost_changed_at: Option<i64>,
    /// By kind, without empty kinds.
    pub things: BTreeMap<Kind, Counted>,
}

/// Prepares a restored database for use. `lost` is the database that it replaces, or the reason why that is unreadable.
/// With `bring_back`, entities that were withdrawn since the backup are listed and become valid again, except
/// credentials: a revoked one never does. Neither do those in `revocations`, the control plane's file.
///
/// # Errors
/// When the database is not one of ours, a service uses it, or it does not answer. It may be tried again.
pub async fn finish_restore(
    restored: &Location,
    lost: anyhow::Result<Location>,
    revocations: Option<&Path>,
    bring_back: bool,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Report> {
    Database::may_be_taken(restored).await?;
    let mut revoked =
        revocations.map(revocations::read).transpose()?.unwrap_or_default().into_values().collect::<Vec<_>>();
    let store = Store::open(restored, clock).await?;
    let mut write = store.write().await?;
    let now = write.now();
    write.connection().allow(TIME_MAX).await?;
    let newest = comparison::newest(write.connection()).await?;
    let (mut good, _) = comparison::good(write.connection(), now).await.context("reading the restored database")?;
    let mut lost_newest = None;
    let compared = match lost {
        Ok(location) => comparison::read_lost(&location, newest, now, &mut lost_newest).await,
        Err(why) => Err(why),
    };
    let (outcome, why, things) = match compared {
        Ok(lost) => {
            let mut since: Good = good.into_iter().filter(|(thing, _)| !lost.good.contains_key(thing)).collect();
            revoked.extend_from_slice(&lost.revoked);
            if bring_back {
                since.retain(|(kind, _), _| !matches!(kind, Kind::Credential | Kind::Token));
                (Outcome::Back, None, since)
            } else {
                withdraw(&mut write, &lost, &since).await.context("withdrawing everything removed since the backup")?;
                (Outcome::Withdrawn, None, since)
            }
        }
        Err(why) => {
            good.retain(|(kind, id), _| *kind != Kind::Data && !revoked.iter().any(|one| one.digest == *id));
            (Outcome::Unknown, Some(format!("{why:#}")), good)
        }
    };
    for one in &revoked {
        comparison::revoke(write.connection(), one).await?;
    }
    comparison::end_sessions_and_keys(write.connection()).await?;
    write.replace_earlier(lost_newest.map_or(0, |(current, _)| current)).await?;
    write.commit().await?;
    store.database().close().await;
    let (changed_at, lost_changed_at) = (newest.2, lost_newest.map(|(_, at)| at));
    Ok(Report { outcome, why, changed_at, lost_changed_at, things: counted(things) })
}

/// Withdraws everything that was withdrawn in the lost database.
async fn withdraw(write: &mut Write, lost: &Lost, since: &Good) -> anyhow::Result<()> {
    let now = write.now();
    let platform = comparison::platform(write.connection()).await?;
    for ((kind, id), (of, name)) in since {
        match kind {
            // With all other revoked ones.
            Kind::Credential | Kind::Token => {}
            Kind::Project => {
                let Some(mut project) = projects::find_named(write.connection(), &name.parse()?).await? else {
                    continue;
                };
                let platform = platform.as_ref().context("it has no platform host")?;
                let erase_at = UnixMillis(lost.kept.get(id).copied().unwrap_or(now.0));
                publish::withdraw_project(write, platform, &mut project, erase_at).await?;
            }
            Kind::Key => end_key(write, of, id, None).await?,
            Kind::Name => {
                // The domains of a withdrawn project are withdrawn with it.
                let Some(project) = projects::find_by_uid(write.connection(), &of.parse()?).await? else { continue };
                let domain = domains::find_domain(write.connection(), &project.id, &name.parse()?).await?;
                if let Some(domain) = domain {
                    publish::forget(write, &domain, &project.salt).await?;
                }
            }
            Kind::Data => {
                projects::erase(write.connection(), &ProjectRef { uid: id.parse()?, name: name.parse()? }, now).await?;
            }
        }
    }
    let known: BTreeSet<_> = comparison::ends(write.connection(), now).await?.into_iter().collect();
    for end in lost.ends.iter().filter(|end| !known.contains(end)) {
        end_key(write, &end.1, &end.0, Some(UnixSeconds(end.2))).await?;
    }
    Ok(())
}

/// Revokes a key, or sets its end.
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

/// Counts by kind. Data that comes back counts as its project.
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
