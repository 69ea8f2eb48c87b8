//! A damaged file: what was found is recorded, the intact entities are served on, and a snapshot from the control plane
//! replaces it.
//!
//! The follower requests the snapshot, which goes into a new file beside the damaged one. redb verifies its own
//! checksums only after a crash, and panics on some damage; its complete check would write to the damaged file.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redb::Database;

use super::{File, STOPPED, create};
use crate::damage;

/// Damaged entities of one file that are logged; all are counted.
const LOGGED_MAX: u64 = 20;

/// After a snapshot that could not replace a damaged file, changes are followed for this long before the next one.
const SNAPSHOT_PAUSE: Duration = Duration::from_mins(5);

/// Damage of a file, found so far.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    found: AtomicU64,
    paused_until: Mutex<Option<Instant>>,
}

impl Damage {
    /// Counts and logs something that cannot be read.
    pub(crate) fn found(&self, error: &anyhow::Error) {
        if self.found.fetch_add(1, Ordering::Relaxed) < LOGGED_MAX {
            tracing::error!(
                error = format!("{error:#}"),
                "the local replica is damaged; requesting a snapshot from the control plane. Check the disk"
            );
        }
    }

    /// Whether there is any.
    pub(crate) fn is_there(&self) -> bool {
        self.found.load(Ordering::Relaxed) > 0
    }

    /// Whether a snapshot should replace the file now.
    pub(crate) fn needs_snapshot(&self) -> bool {
        self.is_there() && self.paused_until.lock().is_none_or(|until| Instant::now() >= until)
    }

    /// A snapshot could not replace the file: changes come first for a while.
    pub(crate) fn pause(&self) {
        *self.paused_until.lock() = Some(Instant::now() + SNAPSHOT_PAUSE);
    }

    /// The file was replaced.
    pub(crate) fn is_over(&self) {
        self.found.store(0, Ordering::Relaxed);
        *self.paused_until.lock() = None;
    }

    /// In words, if there is any.
    pub(crate) fn in_words(&self) -> Option<String> {
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
    pub(crate) fn beside(&self) -> anyhow::Result<Database> {
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

    /// Renames the damaged file and continues with the new one. A crash between the two leaves a gateway without a
    /// replica, which requests a snapshot.
    pub(crate) fn exchange(&self, fresh: Database) -> anyhow::Result<()> {
        let why = self.damage.in_words().unwrap_or_default();
        if self.path.exists() {
            damage::quarantine(&self.path, &anyhow::Error::msg(why))?;
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
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Database) -> anyhow::Result<T>) -> anyhow::Result<T> {
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
    pub(crate) fn record_damage(&self, database: &Database, error: &anyhow::Error) {
        if std::ptr::eq(Arc::as_ptr(&self.database.read()), database) {
            self.damage.found(error);
        }
    }
}
