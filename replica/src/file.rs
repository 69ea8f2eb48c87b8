//! The local file: one table per kind of entity with JSON values and their checksums (`checksum`), and their
//! revision with its mark. Another table has the certificates in order of their expiry, written in the same
//! transaction: the next expiry is read every second, and there may be a million certificates.
//!
//! redb commits are durable when they return, and a crash leaves the last commit, so the revision and the entities
//! always match. A write that fails for lack of space is worse than a refused one: after it redb returns only data in
//! memory until the file is reopened. Therefore a write begins only if enough space is left.

mod checksum;
mod damaged;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use contract::feed::{Effect, Entity, EntityName, Mark, Position, Revision};
use contract::time::UnixSeconds;
use parking_lot::RwLock;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition, WriteTransaction};
use serde::de::DeserializeOwned;

use self::checksum::{opened, sealed};
use self::damaged::Damage;
use super::Expiry;
use super::validate::Unusable;

type Table = TableDefinition<'static, &'static str, &'static [u8]>;

/// `(not_after, hostname)` to `not_before`, for every certificate.
const EXPIRIES: TableDefinition<'static, (i64, &'static str), i64> = TableDefinition::new("expiries");

/// Why the newest certificate of a hostname is unusable.
const UNUSABLE: Table = TableDefinition::new("certificates_set_aside");

/// The revision of all other data, and its mark.
const POSITION: TableDefinition<'static, (), (u64, u64)> = TableDefinition::new("position");

/// Has an entry from before a goodbye, or from the first start with a copy, until the control plane knows the next
/// process ([`super::registration`]).
pub(super) const STOPPED: TableDefinition<'static, (), ()> = TableDefinition::new("stopped");

/// Memory of redb for pages; the caches above it serve most reads.
const PAGE_CACHE_BYTES: usize = 32 * 1024 * 1024;

/// Bytes that must stay free on the disk beyond the written ones: a batch of changes and its pages need less.
pub(super) const ROOM_MIN: u64 = 16 * 1024 * 1024;

/// The largest size of an entity without a certificate, and of a certificate beside its texts.
const ENTITY_BYTES: usize = 600;

contract::words! {
    /// The kinds of entity, each a table.
    pub(super) enum Kind {
        Site = "sites",
        Project = "projects",
        Key = "keys",
        Certificate = "certificates",
        Challenge = "challenges",
    }
}

impl Kind {
    pub(super) const fn table(self) -> Table {
        TableDefinition::new(self.as_str())
    }
}

/// The handling of one change.
pub(super) enum Step<'a> {
    /// It is applied.
    Take(&'a Effect),
    /// Its certificate is unusable, and the previous one stays.
    Skip(Unusable),
}

/// Free bytes on the disk of a path.
pub(super) type FreeSpace = fn(&Path) -> std::io::Result<u64>;

fn free_on_disk(path: &Path) -> std::io::Result<u64> {
    let disk = rustix::fs::statvfs(path)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

pub(super) struct File {
    pub(super) database: RwLock<Arc<Database>>,
    pub(super) damage: Damage,
    pub(super) path: PathBuf,
    free_space: FreeSpace,
}

/// Opens the database of a path, or creates it.
pub(super) fn create(path: &Path) -> anyhow::Result<Database> {
    let place = || format!("opening the replica {}", path.display());
    if let Some(directory) = path.parent() {
        chassis::durable::create_directories(directory).with_context(place)?;
    }
    let database = Database::builder().set_cache_size(PAGE_CACHE_BYTES).create(path);
    let database = database.map_err(redb::Error::from).with_context(place)?;
    let write = database.begin_write().map_err(redb::Error::from).with_context(place)?;
    for kind in Kind::ALL {
        write.open_table(kind.table())?;
    }
    write.open_table(POSITION)?;
    write.open_table(STOPPED)?;
    write.open_table(UNUSABLE)?;
    order_expiries(&write).with_context(place)?;
    write.commit().map_err(redb::Error::from).with_context(place)?;
    if let Some(directory) = path.parent() {
        chassis::durable::sync_names(directory).with_context(place)?;
    }
    Ok(database)
}

impl File {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        Self::open_on(path, free_on_disk)
    }

    /// Opens on a disk with the free space that `free_space` reports.
    pub(super) fn open_on(path: &Path, free_space: FreeSpace) -> anyhow::Result<Self> {
        let database = RwLock::new(Arc::new(create(path)?));
        Ok(Self { database, damage: Damage::default(), path: path.to_owned(), free_space })
    }

    /// Begins a write of this many bytes, if there is enough space.
    fn write(&self, bytes: usize) -> anyhow::Result<WriteTransaction> {
        self.has_space_for(bytes)?;
        Ok(self.database.read().begin_write()?)
    }

    fn has_space_for(&self, bytes: usize) -> anyhow::Result<()> {
        let needed = u64::try_from(bytes)?.saturating_add(ROOM_MIN);
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let left = (self.free_space)(directory).context("reading the free space of the disk")?;
        anyhow::ensure!(
            left >= needed,
            "the disk of {} has {} MiB left, and {} MiB are needed",
            self.path.display(),
            left >> 20,
            needed >> 20
        );
        Ok(())
    }

    /// The certificates that expire first. An unreadable file counts as empty.
    pub(super) fn soonest_to_expire(&self, limit: usize) -> Vec<Expiry> {
        or_empty(self.read(|database| {
            let table = database.begin_read()?.open_table(EXPIRIES)?;
            let rows = table.iter()?.take(limit).map(|row| {
                let (ends, begins) = row?;
                let (not_after, hostname) = ends.value();
                let (not_before, not_after) = (UnixSeconds(begins.value()), UnixSeconds(not_after));
                Ok(Expiry { hostname: hostname.to_owned(), not_before, not_after })
            });
            rows.collect()
        }))
    }

    /// The control plane's position in its history when this was written. A new file has none.
    pub(super) fn position(&self) -> anyhow::Result<Option<Position>> {
        let stored = self.read(|database| {
            let table = database.begin_read()?.open_table(POSITION)?;
            Ok(table.get(())?.map(|stored| stored.value()))
        })?;
        Ok(stored.map(|(revision, mark)| Position { revision: Revision(revision), mark: Mark(mark) }))
    }

    /// Whether the control plane may not be waiting for a process with this file.
    pub(super) fn is_stopped(&self) -> anyhow::Result<bool> {
        self.read(|database| Ok(database.begin_read()?.open_table(STOPPED)?.get(())?.is_some()))
    }

    /// Records whether it may not be waiting.
    pub(super) fn set_stopped(&self, stopped: bool) -> anyhow::Result<()> {
        let write = self.write(0)?;
        if stopped {
            write.open_table(STOPPED)?.insert((), ())?;
        } else {
            write.open_table(STOPPED)?.remove(())?;
        }
        write.commit().context("committing the replica")
    }

    /// Calls `show` for every key of a kind with its value, except damaged ones.
    pub(super) fn each(
        &self,
        kind: Kind,
        mut show: impl FnMut(&str, &[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.read(|database| {
            for row in database.begin_read()?.open_table(kind.table())?.iter()? {
                let (key, stored) = row?;
                match opened(kind, key.value(), stored.value()) {
                    Ok(value) => show(key.value(), value)?,
                    Err(error) => self.record_damage(database, &error),
                }
            }
            Ok(())
        })
    }

    /// Number of entities of a kind.
    pub(super) fn count(&self, kind: Kind) -> anyhow::Result<u64> {
        use redb::ReadableTableMetadata as _;
        self.read(|database| Ok(database.begin_read()?.open_table(kind.table())?.len()?))
    }

    /// An entity; an unreadable file or value counts as absent, so that a request is refused, not broken.
    pub(super) fn get<T: DeserializeOwned>(&self, kind: Kind, key: &str) -> Option<T> {
        let read = self.read(|database| {
            let table = database.begin_read()?.open_table(kind.table())?;
            let Some(stored) = table.get(key)? else { return Ok(None) };
            Ok(Some(serde_json::from_slice(opened(kind, key, stored.value())?)?))
        });
        read.ok().flatten()
    }

    /// The entities of a kind that `matches`, at most `limit`. Reads all of them; unreadable ones are left out.
    pub(super) fn find<T: DeserializeOwned>(&self, kind: Kind, limit: usize, matches: impl Fn(&T) -> bool) -> Vec<T> {
        or_empty(self.read(|database| {
            let table = database.begin_read()?.open_table(kind.table())?;
            let values = table.iter()?.filter_map(|row| {
                let (key, stored) = row.ok()?;
                let value = opened(kind, key.value(), stored.value());
                let value = value.and_then(|value| Ok(serde_json::from_slice::<T>(value)?));
                value.inspect_err(|error| self.record_damage(database, error)).ok()
            });
            Ok(values.filter(|value| matches(value)).take(limit).collect())
        }))
    }

    /// Unusable certificates, at most `limit`. An unreadable file counts as empty.
    pub(super) fn unusable(&self, limit: usize) -> Vec<Unusable> {
        or_empty(self.read(|database| {
            let table = database.begin_read()?.open_table(UNUSABLE)?;
            let rows = table.iter()?.take(limit).map(|row| {
                let (hostname, reason) = row?;
                let reason = String::from_utf8_lossy(reason.value()).into_owned();
                Ok(Unusable { hostname: hostname.value().to_owned(), reason })
            });
            rows.collect()
        }))
    }

    pub(super) fn apply(&self, steps: &[Step], position: Position) -> anyhow::Result<()> {
        let write = self.write(0)?;
        for step in steps {
            match step {
                Step::Take(Effect::Put(entity)) => put(&write, entity)?,
                Step::Take(Effect::Remove(name)) => {
                    let (kind, key) = place_of(name);
                    let before = write.open_table(kind.table())?.remove(key.as_str())?.map(|old| old.value().to_vec());
                    if matches!(kind, Kind::Certificate) {
                        certificate_changed(&write, &key, before.as_deref(), None)?;
                    }
                }
                Step::Skip(unusable) => record_unusable(&write, unusable)?,
            }
        }
        finish(write, position)
    }

    /// Replaces everything except `unusable` certificates: the previous ones stay.
    pub(super) fn replace(&self, entities: &[Entity], unusable: &[Unusable], position: Position) -> anyhow::Result<()> {
        let names: HashSet<&str> = unusable.iter().map(|one| one.hostname.as_str()).collect();
        let is_unusable = |entity: &&Entity| matches!(entity, Entity::Certificate(bundle) if names.contains(bundle.hostname.as_str()));
        let before = names.iter().filter_map(|name| self.get(Kind::Certificate, name));
        let before: Vec<Entity> = before.map(Entity::Certificate).collect();
        let taken = || entities.iter().filter(|entity| !is_unusable(entity)).chain(&before);
        // The old entries stay until the new ones are written; trees may be half empty.
        self.has_space_for(taken().map(size_of).sum::<usize>().saturating_mul(2))?;
        let fresh = self.damage.is_there().then(|| self.beside()).transpose()?;
        let write = match &fresh {
            Some(fresh) => fresh.begin_write()?,
            None => self.database.read().begin_write()?,
        };
        for kind in Kind::ALL {
            write.delete_table(kind.table())?;
            write.open_table(kind.table())?;
        }
        write.delete_table(EXPIRIES)?;
        write.open_table(EXPIRIES)?;
        write.delete_table(UNUSABLE)?;
        write.open_table(UNUSABLE)?;
        for entity in taken() {
            put(&write, entity)?;
        }
        for one in unusable {
            record_unusable(&write, one)?;
        }
        finish(write, position)?;
        fresh.map_or(Ok(()), |fresh| self.exchange(fresh))
    }
}

/// The result; an unreadable file counts as empty.
fn or_empty<T>(read: anyhow::Result<Vec<T>>) -> Vec<T> {
    read.unwrap_or_default()
}

fn record_unusable(write: &WriteTransaction, Unusable { hostname, reason }: &Unusable) -> anyhow::Result<()> {
    write.open_table(UNUSABLE)?.insert(hostname.as_str(), reason.as_bytes())?;
    Ok(())
}

fn size_of(entity: &Entity) -> usize {
    ENTITY_BYTES
        + match entity {
            Entity::Certificate(bundle) => bundle.chain_pem.len() + bundle.key.0.len(),
            Entity::Project(_) | Entity::Site(_) | Entity::Key(_) | Entity::Challenge(_) => 0,
        }
}

fn finish(write: WriteTransaction, position: Position) -> anyhow::Result<()> {
    write.open_table(POSITION)?.insert((), (position.revision.0, position.mark.0))?;
    write.commit().context("committing the replica")
}

/// An entity in its stored form.
pub(super) fn value_of(entity: &Entity) -> anyhow::Result<Vec<u8>> {
    Ok(match entity {
        Entity::Project(project) => serde_json::to_vec(project),
        Entity::Site(site) => serde_json::to_vec(site),
        Entity::Key(key) => serde_json::to_vec(key),
        Entity::Certificate(bundle) => serde_json::to_vec(bundle),
        Entity::Challenge(challenge) => serde_json::to_vec(challenge),
    }?)
}

fn put(write: &WriteTransaction, entity: &Entity) -> anyhow::Result<()> {
    let (kind, key) = place_of(&entity.name());
    let value = sealed(kind, &key, &value_of(entity)?);
    let before =
        write.open_table(kind.table())?.insert(key.as_str(), value.as_slice())?.map(|old| old.value().to_vec());
    if let Entity::Certificate(bundle) = entity {
        certificate_changed(write, &key, before.as_deref(), Some((bundle.not_before, bundle.not_after)))?;
    }
    Ok(())
}

/// The dates of a stored certificate.
#[derive(serde::Deserialize)]
struct Dates {
    not_before: UnixSeconds,
    not_after: UnixSeconds,
}

/// Updates the expiry table after a certificate has changed or was removed, and clears its entry of an unusable one.
fn certificate_changed(
    write: &WriteTransaction,
    hostname: &str,
    before: Option<&[u8]>,
    after: Option<(UnixSeconds, UnixSeconds)>,
) -> anyhow::Result<()> {
    write.open_table(UNUSABLE)?.remove(hostname)?;
    let mut table = write.open_table(EXPIRIES)?;
    if let Some(before) = before {
        let dates = opened(Kind::Certificate, hostname, before).and_then(|value| Ok(serde_json::from_slice(value)?));
        match dates {
            Ok(Dates { not_after, .. }) => drop(table.remove((not_after.0, hostname))?),
            // The change that replaces a damaged certificate must not fail because of it.
            Err(_) => table.retain(|(_, name), _| name != hostname)?,
        }
    }
    if let Some((not_before, not_after)) = after {
        table.insert((not_after.0, hostname), not_before.0)?;
    }
    Ok(())
}

/// Builds the expiry table for files of a version without it.
fn order_expiries(write: &WriteTransaction) -> anyhow::Result<()> {
    let mut ordered = write.open_table(EXPIRIES)?;
    if ordered.first()?.is_some() {
        return Ok(());
    }
    for row in write.open_table(Kind::Certificate.table())?.iter()? {
        let (hostname, stored) = row?;
        let value = opened(Kind::Certificate, hostname.value(), stored.value())?;
        let dates: Dates = serde_json::from_slice(value)?;
        ordered.insert((dates.not_after.0, hostname.value()), dates.not_before.0)?;
    }
    Ok(())
}

pub(super) fn place_of(name: &EntityName) -> (Kind, String) {
    match name {
        EntityName::Project(id) => (Kind::Project, id.as_str().to_owned()),
        EntityName::Site(hostname) => (Kind::Site, hostname.as_str().to_owned()),
        EntityName::Key(digest) => (Kind::Key, digest.to_text()),
        EntityName::Certificate(hostname) => (Kind::Certificate, hostname.as_str().to_owned()),
        EntityName::Challenge(token) => (Kind::Challenge, token.clone()),
    }
}
