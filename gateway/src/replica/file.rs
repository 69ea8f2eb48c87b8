//! The local file: one table per kind of entity, JSON values, and the revision they describe. Beside the certificates
//! stands a table in the order of their ends, written in the same transaction: which end first is a question of every
//! second, and there may be a million.
//!
//! redb commits are durable when they return and a crash leaves the last commit, so the revision and the entities never
//! disagree.

use std::path::Path;

use anyhow::Context as _;
use contract::feed::{Effect, Entity, EntityName, Revision};
use contract::time::UnixSeconds;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition, WriteTransaction};
use serde::de::DeserializeOwned;

use super::Expiry;

type Table = TableDefinition<'static, &'static str, &'static [u8]>;

/// `(not_after, hostname)` to `not_before`, for every certificate.
const EXPIRIES: TableDefinition<'static, (i64, &'static str), i64> = TableDefinition::new("expiries");

const REVISION: TableDefinition<'static, (), u64> = TableDefinition::new("revision");

/// Memory redb may use for pages; the hot caches above it do the real work.
const PAGE_CACHE_BYTES: usize = 32 * 1024 * 1024;

/// The kinds of entity, each a table.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Site,
    Project,
    Key,
    Certificate,
    Challenge,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Site, Self::Project, Self::Key, Self::Certificate, Self::Challenge];

    const fn table(self) -> Table {
        TableDefinition::new(match self {
            Self::Site => "sites",
            Self::Project => "projects",
            Self::Key => "keys",
            Self::Certificate => "certificates",
            Self::Challenge => "challenges",
        })
    }
}

pub(super) struct File(Database);

impl File {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let place = || format!("opening the replica {}", path.display());
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).with_context(place)?;
        }
        let database = Database::builder().set_cache_size(PAGE_CACHE_BYTES).create(path).with_context(place)?;
        let write = database.begin_write()?;
        for kind in Kind::ALL {
            write.open_table(kind.table())?;
        }
        write.open_table(REVISION)?;
        order_expiries(&write).with_context(place)?;
        write.commit()?;
        Ok(Self(database))
    }

    /// The certificates that end first. An unreadable file is logged and counts as empty.
    pub(super) fn soonest_to_expire(&self, limit: usize) -> Vec<Expiry> {
        let read = || -> anyhow::Result<Vec<Expiry>> {
            let table = self.0.begin_read()?.open_table(EXPIRIES)?;
            let rows = table.iter()?.take(limit).map(|row| {
                let (ends, begins) = row?;
                let (not_after, hostname) = ends.value();
                let (not_before, not_after) = (UnixSeconds(begins.value()), UnixSeconds(not_after));
                Ok(Expiry { hostname: hostname.to_owned(), not_before, not_after })
            });
            rows.collect()
        };
        read().unwrap_or_else(|error| {
            tracing::error!(error = format!("{error:#}"), "the local replica cannot be read");
            Vec::new()
        })
    }

    pub(super) fn revision(&self) -> anyhow::Result<Revision> {
        let read = self.0.begin_read()?;
        Ok(Revision(read.open_table(REVISION)?.get(())?.map_or(0, |stored| stored.value())))
    }

    /// An entity; an unreadable file or value is logged and counts as absent, so that a request is refused, not broken.
    pub(super) fn get<T: DeserializeOwned>(&self, kind: Kind, key: &str) -> Option<T> {
        self.try_get(kind, key).unwrap_or_else(|error| {
            tracing::error!(?kind, error = format!("{error:#}"), "the local replica cannot be read");
            None
        })
    }

    fn try_get<T: DeserializeOwned>(&self, kind: Kind, key: &str) -> anyhow::Result<Option<T>> {
        let table = self.0.begin_read()?.open_table(kind.table())?;
        let Some(stored) = table.get(key)? else { return Ok(None) };
        Ok(Some(serde_json::from_slice(stored.value())?))
    }

    /// The first entity of a small kind that `matches`.
    pub(super) fn find<T: DeserializeOwned>(&self, kind: Kind, matches: impl Fn(&T) -> bool) -> Option<T> {
        let read = self.0.begin_read().ok()?;
        let table = read.open_table(kind.table()).ok()?;
        let values = table.iter().ok()?.filter_map(|row| serde_json::from_slice(row.ok()?.1.value()).ok());
        values.into_iter().find(|value| matches(value))
    }

    pub(super) fn apply(&self, effects: &[&Effect], revision: Revision) -> anyhow::Result<()> {
        let write = self.0.begin_write()?;
        for effect in effects {
            match effect {
                Effect::Put(entity) => put(&write, entity)?,
                Effect::Remove(name) => {
                    let (kind, key) = place_of(name);
                    let before = write.open_table(kind.table())?.remove(key.as_str())?.map(|old| old.value().to_vec());
                    if matches!(kind, Kind::Certificate) {
                        move_expiry(&write, &key, before.as_deref(), None)?;
                    }
                }
            }
        }
        finish(write, revision)
    }

    pub(super) fn replace(&self, entities: &[Entity], revision: Revision) -> anyhow::Result<()> {
        let write = self.0.begin_write()?;
        for kind in Kind::ALL {
            write.delete_table(kind.table())?;
            write.open_table(kind.table())?;
        }
        write.delete_table(EXPIRIES)?;
        write.open_table(EXPIRIES)?;
        for entity in entities {
            put(&write, entity)?;
        }
        finish(write, revision)
    }
}

fn finish(write: WriteTransaction, revision: Revision) -> anyhow::Result<()> {
    write.open_table(REVISION)?.insert((), revision.0)?;
    write.commit().context("committing the replica")
}

fn put(write: &WriteTransaction, entity: &Entity) -> anyhow::Result<()> {
    let (kind, key) = place_of(&entity.name());
    let value = match entity {
        Entity::Project(project) => serde_json::to_vec(project),
        Entity::Site(site) => serde_json::to_vec(site),
        Entity::Key(key) => serde_json::to_vec(key),
        Entity::Certificate(bundle) => serde_json::to_vec(bundle),
        Entity::Challenge(challenge) => serde_json::to_vec(challenge),
    }?;
    let before =
        write.open_table(kind.table())?.insert(key.as_str(), value.as_slice())?.map(|old| old.value().to_vec());
    if let Entity::Certificate(bundle) = entity {
        move_expiry(write, &key, before.as_deref(), Some((bundle.not_before, bundle.not_after)))?;
    }
    Ok(())
}

/// The dates alone of a stored certificate.
#[derive(serde::Deserialize)]
struct Dates {
    not_before: UnixSeconds,
    not_after: UnixSeconds,
}

/// A certificate has another end than `before`, or none any more.
fn move_expiry(
    write: &WriteTransaction,
    hostname: &str,
    before: Option<&[u8]>,
    after: Option<(UnixSeconds, UnixSeconds)>,
) -> anyhow::Result<()> {
    let mut table = write.open_table(EXPIRIES)?;
    if let Some(before) = before {
        let dates: Dates = serde_json::from_slice(before)?;
        table.remove((dates.not_after.0, hostname))?;
    }
    if let Some((not_before, not_after)) = after {
        table.insert((not_after.0, hostname), not_before.0)?;
    }
    Ok(())
}

/// Files of a version without the table get it once.
fn order_expiries(write: &WriteTransaction) -> anyhow::Result<()> {
    let mut ordered = write.open_table(EXPIRIES)?;
    if ordered.first()?.is_some() {
        return Ok(());
    }
    for row in write.open_table(Kind::Certificate.table())?.iter()? {
        let (hostname, stored) = row?;
        let dates: Dates = serde_json::from_slice(stored.value())?;
        ordered.insert((dates.not_after.0, hostname.value()), dates.not_before.0)?;
    }
    Ok(())
}

fn place_of(name: &EntityName) -> (Kind, String) {
    match name {
        EntityName::Project(id) => (Kind::Project, id.as_str().to_owned()),
        EntityName::Site(hostname) => (Kind::Site, hostname.as_str().to_owned()),
        EntityName::Key(digest) => (Kind::Key, digest.to_text()),
        EntityName::Certificate(hostname) => (Kind::Certificate, hostname.as_str().to_owned()),
        EntityName::Challenge(token) => (Kind::Challenge, token.clone()),
    }
}
