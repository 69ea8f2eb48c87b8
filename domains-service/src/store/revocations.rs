//! Revoked credentials in a file that is no part of the database: a database that went back in time lost its last
//! revocations, the file did not.
//!
//! Each process has a file of its own with every revocation on record: one it made itself is on disk before the
//! operator has the answer, one of another replica within two seconds. A credential in the file is refused whatever the
//! database says. A damaged line is logged and skipped.
//!
//! A full file takes no more lines, and is never shortened here: which lines are still needed only a database in its
//! present state knows, and the file is for the case that it is not. So the operator moves the file away, and the next
//! start writes a new one from the database, without tokens that have expired since.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use chassis::durable::{create_directories, sync_names};
use chassis::secret::read_if_there;
use chassis::sql::{Found, query_as};
use contract::time::UnixMillis;
use contract::trouble::Trouble;
use parking_lot::Mutex;

use super::comparison::{REVOKED, Revocation};
use super::{Result, Store, to_json};

/// Largest file that is read.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Revocations in one file; a line has less than 600 bytes.
const LINES_MAX: usize = 100_000;

/// From here on operators are warned that the file becomes full.
const LINES_WARNED: usize = 80_000;

/// How an operator makes room.
const FIX: &str = "while the database is in its present state, move the file away and restart this service, which writes \
                    a new one from the database, without expired tokens; one replica after the other";

/// Damaged lines that are logged by number; further ones are counted.
const DAMAGED_LOGGED_MAX: usize = 20;

/// A token that expired this long ago needs no line: a database of any state refuses it. More than clocks differ.
const EXPIRED_FOR_MILLIS: i64 = 86_400_000;

/// Changes with each revocation, whatever clock it was made by: rows are never deleted.
const POSITION: &str = "SELECT COUNT(*), COALESCE(MAX(CAST(revoked_at AS BIGINT)), 0) FROM credentials
    WHERE revoked_at IS NOT NULL";

/// The file, and what is in it by digest.
#[derive(Debug)]
pub(crate) struct Revocations {
    path: PathBuf,
    known: Mutex<HashMap<String, Revocation>>,
    /// Held while the file is written. `known` is not: requests read it.
    writing: Mutex<()>,
    /// [`POSITION`] of the database when the file last had all of its revocations.
    position: Mutex<Option<(i64, i64)>>,
    /// Why the last write failed.
    failure: Mutex<Option<String>>,
    /// The database had a credential of the file as valid.
    is_contradicted: AtomicBool,
}

/// The revocations in a file by digest; none if it does not exist.
///
/// # Errors
/// When it cannot be read, is no regular file, or is larger than [`BYTES_MAX`].
pub(crate) fn read(path: &Path) -> anyhow::Result<HashMap<String, Revocation>> {
    let bytes = read_if_there(path, BYTES_MAX)?;
    let (mut known, mut damaged) = (HashMap::new(), 0);
    for (index, line) in bytes.iter().flat_map(|bytes| bytes.split(|byte| *byte == b'\n')).enumerate() {
        match serde_json::from_slice::<Revocation>(line) {
            Ok(revoked) => drop(known.insert(revoked.digest.clone(), revoked)),
            Err(_) if line.is_empty() => {}
            Err(error) => {
                damaged += 1;
                if damaged <= DAMAGED_LOGGED_MAX {
                    tracing::error!(
                        file = %path.display(), line = index + 1, %error,
                        "skipped a damaged line of revocations_file; other lines are used. Check the disk"
                    );
                }
            }
        }
    }
    if damaged > DAMAGED_LOGGED_MAX {
        let words = "skipped damaged lines of revocations_file; only the first ones are logged. Check the disk";
        tracing::error!(file = %path.display(), damaged, "{words}");
    }
    Ok(known)
}

impl Revocations {
    /// Reads the file, or makes it, and checks that lines can be added.
    ///
    /// # Errors
    /// Like [`read`], and when the file or its directory cannot be written and synced.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let known = read(path)?;
        let file = Self {
            path: path.to_owned(),
            known: Mutex::new(known),
            writing: Mutex::default(),
            position: Mutex::default(),
            failure: Mutex::default(),
            is_contradicted: AtomicBool::default(),
        };
        file.for_appending()
            .and_then(|open| file.sync(&open))
            .with_context(|| format!("writing {}", path.display()))?;
        file.warn_if_nearly_full(0);
        Ok(file)
    }

    /// Opens the file; makes it and its directory if they are missing.
    fn for_appending(&self) -> io::Result<std::fs::File> {
        create_directories(self.directory())?;
        std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)
    }

    /// Waits until the file and its name are on disk.
    fn sync(&self, file: &std::fs::File) -> io::Result<()> {
        file.sync_all()?;
        sync_names(self.directory())
    }

    fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// All of the file.
    pub(crate) fn all(&self) -> Vec<Revocation> {
        self.known.lock().values().cloned().collect()
    }

    /// Whether the credential with this digest was revoked.
    pub(crate) fn has(&self, digest: &str) -> bool {
        self.known.lock().contains_key(digest)
    }

    /// What an operator has to do about the file, if anything.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        if let Some(failure) = &*self.failure.lock() {
            let problem = format!(
                "cannot write revoked credentials into revocations_file: {failure}. If the database went back in time, \
                 they would be valid again. The write is repeated each second"
            );
            return Some(Trouble::of_platform(problem, "free space on its disk, or correct its rights and its path"));
        }
        let lines = self.known.lock().len();
        let problem = || format!("revocations_file {} has {lines} of at most {LINES_MAX} lines", self.path.display());
        (lines >= LINES_WARNED).then(|| Trouble::of_platform(problem(), FIX))
    }

    /// Adds those that the file lacks, the first ones if it has no room for all, and waits until they are on disk.
    fn append(&self, mut revoked: Vec<Revocation>) -> anyhow::Result<()> {
        let _writing = self.writing.lock();
        revoked.retain(|one| !self.has(&one.digest));
        let before = self.known.lock().len();
        let room = LINES_MAX.saturating_sub(before);
        let missing = revoked.len().saturating_sub(room);
        revoked.truncate(room);
        let mut written = if revoked.is_empty() { Ok(()) } else { self.write(&revoked) };
        if written.is_ok() {
            self.known.lock().extend(revoked.into_iter().map(|one| (one.digest.clone(), one)));
            self.warn_if_nearly_full(before);
            if missing > 0 {
                let path = self.path.display();
                written = Err(anyhow::anyhow!("{path} has {LINES_MAX} lines and no room for {missing} more: {FIX}"));
            }
        }
        *self.failure.lock() = written.as_ref().err().map(|error| format!("{error:#}"));
        written
    }

    fn write(&self, new: &[Revocation]) -> anyhow::Result<()> {
        let place = || format!("writing {}", self.path.display());
        let mut file = self.for_appending().with_context(place)?;
        // The last line may have been cut off by a full disk or a crash.
        let lines: Vec<String> = new.iter().map(to_json).collect();
        let length = file.metadata().with_context(place)?.len();
        let written = file.write_all(format!("\n{}\n", lines.join("\n")).as_bytes()).and_then(|()| self.sync(&file));
        if written.is_err() {
            // A repetition must not let the file grow.
            file.set_len(length).with_context(place)?;
        }
        written.with_context(place)
    }

    /// Warns once, when the file with formerly `before` lines becomes nearly full.
    fn warn_if_nearly_full(&self, before: usize) {
        let lines = self.known.lock().len();
        if before < LINES_WARNED && lines >= LINES_WARNED {
            tracing::warn!(
                file = %self.path.display(), lines, lines_max = LINES_MAX, what_to_do = FIX,
                "revocations_file is nearly full"
            );
        }
    }
}

impl Store {
    /// Refuses the credentials in this file from now on, and keeps it up to date.
    pub(crate) fn with_revocations(self, file: Revocations) -> Self {
        Self { revocations: Some(Arc::new(file)), ..self }
    }

    /// The file of revoked credentials; `None` outside of the running service.
    pub(crate) fn revocations(&self) -> Option<&Arc<Revocations>> {
        self.revocations.as_ref()
    }

    /// Whether the credential with this digest is in the file of revoked ones. Remembers that the database says
    /// otherwise.
    pub(super) fn was_revoked(&self, digest: &str) -> bool {
        let found = self.revocations().filter(|file| file.has(digest));
        found.inspect(|file| file.is_contradicted.store(true, Ordering::Release)).is_some()
    }

    /// Whether the database had a revoked credential as valid since the last call.
    pub(crate) fn has_lost_revocations(&self) -> bool {
        self.revocations().is_some_and(|file| file.is_contradicted.swap(false, Ordering::AcqRel))
    }

    /// Adds to the file what was revoked in the database since the last call, by this process or another.
    ///
    /// # Errors
    /// When the database does not answer, or the file cannot be written. The next call repeats it.
    pub(crate) async fn record_revocations(&self) -> anyhow::Result<()> {
        let Some(file) = self.revocations.clone() else { return Ok(()) };
        let position: (i64, i64) = query_as(POSITION).fetch_one(self.reader()).await?;
        if *file.position.lock() == Some(position) {
            return Ok(());
        }
        let on_record = self.revoked(self.clock.now().plus(-EXPIRED_FOR_MILLIS)).await?;
        tokio::task::spawn_blocking(move || {
            file.append(on_record)?;
            *file.position.lock() = Some(position);
            Ok(())
        })
        .await?
    }

    /// Those of `revoked` that are not revoked on record.
    pub(crate) async fn without_revocation(&self, mut revoked: Vec<Revocation>) -> Result<Vec<Revocation>> {
        let on_record = self.revoked(UnixMillis(i64::MIN)).await?;
        let on_record: HashSet<_> = on_record.iter().map(|one| &one.digest).collect();
        revoked.retain(|one| !on_record.contains(&one.digest));
        Ok(revoked)
    }

    /// Revoked credentials that had not expired at `at`. Unreadable rows are left out: they are invalid.
    async fn revoked(&self, at: UnixMillis) -> Result<Vec<Revocation>> {
        let found: Vec<Found<Revocation>> = query_as(REVOKED).bind(at.0).fetch_all(self.reader()).await?;
        Ok(found.into_iter().filter(|found| found.bad.is_none()).map(|found| found.row).collect())
    }
}

#[cfg(test)]
mod tests;
