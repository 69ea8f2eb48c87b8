//! Revoked credentials in a file that is no part of the database: a database that went back in time lost its last
//! revocations, the file did not.
//!
//! Each process has a file of its own with every revocation on record: one it made itself is on disk before the
//! operator has the answer, one of another replica within two seconds. A credential in the file is refused whatever the
//! database says. A damaged line is logged and skipped. Without a usable file the database alone decides.

use std::collections::{HashMap, HashSet};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use chassis::durable::{create_directories, sync_names};
use chassis::secret::read_if_there;
use chassis::sql::{Found, query_as};
use contract::time::UnixMillis;
use parking_lot::Mutex;

use super::comparison::{REVOKED, Revocation};
use super::{Store, StoreError, to_json};

/// Largest file that is read.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Revocations in one file; a line has less than 600 bytes.
const LINES_MAX: usize = 100_000;

/// The file, and what is in it by digest.
#[derive(Debug)]
pub(crate) struct Revocations {
    path: PathBuf,
    known: Mutex<HashMap<String, Revocation>>,
    /// Held while the file is written. `known` is not: requests read it.
    writing: Mutex<()>,
    /// The database had a credential of the file as valid.
    is_contradicted: AtomicBool,
}

impl Revocations {
    /// Reads the file, if it exists.
    ///
    /// # Errors
    /// When it cannot be read, is no regular file, or is larger than [`BYTES_MAX`].
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let bytes = read_if_there(path, BYTES_MAX)?;
        let mut known = HashMap::new();
        for (index, line) in bytes.iter().flat_map(|bytes| bytes.split(|byte| *byte == b'\n')).enumerate() {
            match serde_json::from_slice::<Revocation>(line) {
                Ok(revoked) => drop(known.insert(revoked.digest.clone(), revoked)),
                Err(_) if line.is_empty() => {}
                Err(error) => tracing::error!(
                    file = %path.display(), line = index + 1, %error,
                    "skipped a damaged line of the revoked credentials; the other lines are used"
                ),
            }
        }
        Ok(Self {
            path: path.to_owned(),
            known: Mutex::new(known),
            writing: Mutex::default(),
            is_contradicted: AtomicBool::default(),
        })
    }

    /// All of the file.
    pub(crate) fn all(&self) -> Vec<Revocation> {
        self.known.lock().values().cloned().collect()
    }

    /// Whether the credential with this digest was revoked.
    pub(crate) fn has(&self, digest: &str) -> bool {
        self.known.lock().contains_key(digest)
    }

    /// Adds those that the file lacks, and waits until they are on disk.
    fn append(&self, revoked: Vec<Revocation>) -> anyhow::Result<()> {
        let _writing = self.writing.lock();
        let new: Vec<_> = revoked.into_iter().filter(|one| !self.has(&one.digest)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let place = || format!("writing {}", self.path.display());
        let count = self.known.lock().len() + new.len();
        anyhow::ensure!(count <= LINES_MAX, "{} has {LINES_MAX} lines", self.path.display());
        let directory = self.path.parent().unwrap_or(Path::new(""));
        create_directories(directory).with_context(place)?;
        let mut file = std::fs::OpenOptions::new();
        let mut file = file.append(true).create(true).mode(0o600).open(&self.path).with_context(place)?;
        // The last line may have been cut off by a full disk or a crash.
        let lines: Vec<String> = new.iter().map(to_json).collect();
        let length = file.metadata().with_context(place)?.len();
        let written = file.write_all(format!("\n{}\n", lines.join("\n")).as_bytes()).and_then(|()| file.sync_all());
        let written = written.map_err(anyhow::Error::from).and_then(|()| Ok(sync_names(directory)?));
        if let Err(error) = written {
            // A repetition must not let the file grow.
            file.set_len(length).with_context(place)?;
            return Err(error).with_context(place);
        }
        self.known.lock().extend(new.into_iter().map(|one| (one.digest.clone(), one)));
        Ok(())
    }
}

impl Store {
    /// The file of revoked credentials, if it is usable.
    pub(crate) fn revocations(&self) -> Option<&Arc<Revocations>> {
        self.revocations.get()
    }

    /// Uses this file from now on.
    pub(crate) fn use_revocations(&self, file: Revocations) {
        // One file is used for the life of the process.
        let _ = self.revocations.set(Arc::new(file));
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

    /// Adds revocations that are on record since this moment to the file.
    pub(crate) async fn record_revocations(&self, since: UnixMillis) -> anyhow::Result<()> {
        let Some(file) = self.revocations().cloned() else { return Ok(()) };
        let on_record = self.revoked(since).await?;
        tokio::task::spawn_blocking(move || file.append(on_record)).await?
    }

    /// Those of `revoked` that are not revoked on record.
    pub(crate) async fn without_revocation(&self, mut revoked: Vec<Revocation>) -> Result<Vec<Revocation>, StoreError> {
        let on_record = self.revoked(UnixMillis(0)).await?;
        let on_record: HashSet<_> = on_record.iter().map(|one| &one.digest).collect();
        revoked.retain(|one| !on_record.contains(&one.digest));
        Ok(revoked)
    }

    /// Credentials that were revoked since this moment. Unreadable rows are left out: they are invalid.
    async fn revoked(&self, since: UnixMillis) -> Result<Vec<Revocation>, StoreError> {
        let found: Vec<Found<Revocation>> = query_as(REVOKED).bind(since.0).fetch_all(self.reader()).await?;
        Ok(found.into_iter().filter(|found| found.bad.is_none()).map(|found| found.row).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn revoked(digest: &str) -> Revocation {
        let line = format!(r#"{{"digest":"{digest}","name":"edge-1","kind":"gateway","created_at":1,"revoked_at":2}}"#);
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn a_file_keeps_every_revocation_once_and_loses_only_damaged_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("below/revoked");
        let file = Revocations::open(&path).unwrap();
        file.append(vec![revoked("a"), revoked("b")]).unwrap();
        file.append(vec![revoked("b"), revoked("c")]).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches("\"b\"").count(), 1, "{text}");
        // The disk was full in the middle of a line, and a byte of the first line is wrong.
        std::fs::write(&path, format!("{}{{\"cut", text.replacen("\"a\"", "_a\"", 1))).unwrap();
        let file = Revocations::open(&path).unwrap();
        assert!(!file.has("a") && file.has("b") && file.has("c"));
        file.append(vec![revoked("a")]).unwrap();
        let file = Revocations::open(&path).unwrap();
        assert!(["a", "b", "c"].iter().all(|digest| file.has(digest)));
        assert!(Revocations::open(directory.path()).is_err(), "a directory");
    }
}
