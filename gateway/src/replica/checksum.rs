//! Checksums of stored entities, verified whenever one is read and once after each start: a changed byte on the disk
//! must not be one tenant's silent outage.
//!
//! A file with a wrong entity goes on serving the others. The follower requests a snapshot, which goes into a new
//! file, and the damaged one is set aside. redb verifies its own checksums only after a crash, and panics on some
//! damage; its complete check would write to the damaged file.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use aws_lc_rs::digest::{Context, SHA256};
use parking_lot::Mutex;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _};

use super::file::{File, Kind, STOPPED, create};
use crate::damage;

/// Bytes of the checksum behind each value. They are blanks, which JSON ignores: a version of the gateway without
/// checksums reads the same value.
const BYTES: usize = 32;

/// Damaged entities of one file that are logged; all are counted.
const LOGGED_MAX: u64 = 20;

/// The last two bits of each byte of SHA-256.
fn checksum(kind: Kind, key: &str, value: &[u8]) -> [u8; BYTES] {
    let mut context = Context::new(&SHA256);
    for part in [kind.as_str().as_bytes(), &[0], key.as_bytes(), &[0], value] {
        context.update(part);
    }
    let mut blanks = [b' '; BYTES];
    for (blank, byte) in blanks.iter_mut().zip(context.finish().as_ref()) {
        *blank = match byte & 3 {
            0 => b' ',
            1 => b'\t',
            2 => b'\n',
            _ => b'\r',
        };
    }
    blanks
}

/// A value in its stored form.
pub(super) fn sealed(kind: Kind, key: &str, value: &[u8]) -> Vec<u8> {
    [value, checksum(kind, key, value).as_slice()].concat()
}

/// The value of a stored form. One without a checksum is of another version, and is not verified.
pub(super) fn opened<'a>(kind: Kind, key: &str, stored: &'a [u8]) -> anyhow::Result<&'a [u8]> {
    if stored.ends_with(b"}") {
        return Ok(stored);
    }
    let name = kind.as_str();
    let whole = stored.split_last_chunk::<BYTES>().filter(|(value, sum)| **sum == checksum(kind, key, value));
    Ok(whole.with_context(|| format!("{key:?} in {name} does not match its checksum"))?.0)
}

/// After a snapshot that could not replace a damaged file, changes are followed for this long before the next one.
const SNAPSHOT_PAUSE: Duration = Duration::from_mins(5);

/// Damage of a file, found so far.
#[derive(Debug, Default)]
pub(super) struct Damage {
    found: AtomicU64,
    paused_until: Mutex<Option<Instant>>,
}

impl Damage {
    /// Counts and logs something that cannot be read.
    pub(super) fn found(&self, error: &anyhow::Error) {
        if self.found.fetch_add(1, Ordering::Relaxed) < LOGGED_MAX {
            tracing::error!(
                error = format!("{error:#}"),
                "the local replica is damaged; requesting a snapshot from the control plane. Check the disk"
            );
        }
    }

    /// Whether there is any.
    pub(super) fn is_there(&self) -> bool {
        self.found.load(Ordering::Relaxed) > 0
    }

    /// Whether a snapshot should replace the file now.
    pub(super) fn needs_snapshot(&self) -> bool {
        self.is_there() && self.paused_until.lock().is_none_or(|until| Instant::now() >= until)
    }

    /// A snapshot could not replace the file: changes come first for a while.
    pub(super) fn pause(&self) {
        *self.paused_until.lock() = Some(Instant::now() + SNAPSHOT_PAUSE);
    }

    /// The file was replaced.
    pub(super) fn is_over(&self) {
        self.found.store(0, Ordering::Relaxed);
        *self.paused_until.lock() = None;
    }

    /// In words, if there is any.
    pub(super) fn in_words(&self) -> Option<String> {
        self.is_there().then(|| {
            let found = self.found.load(Ordering::Relaxed);
            format!(
                "the local replica is damaged ({found} errors so far; the log names them): waiting for a snapshot from \
                 the control plane, which replaces it. Check the disk"
            )
        })
    }
}

/// The path of a file that replaces a damaged one.
fn beside(path: &Path) -> PathBuf {
    path.with_extension("redb.new")
}

impl File {
    /// A new database beside a damaged one. Whether this process may serve is as before.
    pub(super) fn beside(&self) -> anyhow::Result<Database> {
        let path = beside(&self.path);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let fresh = create(&path)?;
        if self.is_stopped().unwrap_or(true) {
            let write = fresh.begin_write()?;
            write.open_table(STOPPED)?.insert((), ())?;
            write.commit()?;
        }
        Ok(fresh)
    }

    /// Sets the damaged file aside and goes on with the new one. A crash between the two leaves a gateway without a
    /// replica, which requests a snapshot.
    pub(super) fn exchange(&self, fresh: Database) -> anyhow::Result<()> {
        let why = self.damage.in_words().unwrap_or_default();
        if self.path.exists() {
            damage::set_aside(&self.path, &anyhow::Error::msg(why))?;
        }
        std::fs::rename(beside(&self.path), &self.path)?;
        chassis::durable::sync_names(self.path.parent().unwrap_or(Path::new("")))?;
        let damaged = std::mem::replace(&mut *self.database.write(), Arc::new(fresh));
        self.damage.is_over();
        // The database library may panic on closing it.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(damaged)));
        Ok(())
    }

    /// Reads from the database. A failure or a panic of it is damage.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Database) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let database = self.database.read().clone();
        // The closure owns the database: closing a damaged one may panic too.
        let read = catch_unwind(AssertUnwindSafe(move || {
            read(&database).inspect_err(|error| self.record_damage(&database, error))
        }));
        read.unwrap_or_else(|_| {
            let error = anyhow::anyhow!("the database library panicked");
            self.damage.found(&error);
            Err(error)
        })
    }

    /// Records damage of this database, unless another one has replaced it.
    pub(super) fn record_damage(&self, database: &Database, error: &anyhow::Error) {
        if std::ptr::eq(Arc::as_ptr(&self.database.read()), database) {
            self.damage.found(error);
        }
    }

    /// Verifies every entity while `goes_on`: that it is found by its name, and its checksum.
    pub(super) fn verify(&self, goes_on: impl Fn() -> bool) {
        for &kind in Kind::ALL {
            // A failure is recorded.
            let _ = self.read(|database| self.verify_kind(database, kind, &goes_on));
        }
    }

    fn verify_kind(&self, database: &Database, kind: Kind, goes_on: &impl Fn() -> bool) -> anyhow::Result<()> {
        let table = database.begin_read()?.open_table(kind.table())?;
        let (count, mut seen) = (table.len()?, 0);
        // Damaged pages may form a circle.
        for row in table.iter()?.take_while(|_| goes_on()).take(usize::try_from(count)?.saturating_add(1)) {
            let (key, stored) = row?;
            let is_found = table.get(key.value())?.is_some_and(|found| found.value() == stored.value());
            let intact = opened(kind, key.value(), stored.value()).and_then(|_| {
                anyhow::ensure!(is_found, "{:?} in {} is not found by its name", key.value(), kind.as_str());
                Ok(())
            });
            if let Err(error) = intact {
                self.record_damage(database, &error);
            }
            seen += 1;
        }
        anyhow::ensure!(seen == count || !goes_on(), "{} has {seen} entities instead of {count}", kind.as_str());
        Ok(())
    }
}
