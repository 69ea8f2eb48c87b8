//! Damaged files of the data directory: at its start the gateway renames them ("quarantine") and continues without
//! their contents.
//!
//! A renamed file stays until an operator removes it, at most one per name; `/status` and a metric show it. A pipe, a
//! device, a directory, a broken link or a file of any size does not prevent the start: no read blocks or exceeds its
//! bound.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chassis::secret::read_if_there;

/// The file with the node's identity, in the data directory.
pub const PLACE: &str = "place";
/// The file with the replica, in the data directory.
pub const REPLICA: &str = "replica.redb";

/// The signing and sealing keys from the control plane, in the data directory.
pub const KEYRING: &str = "keyring.sealed";
/// The counts of the embedded quota store, in the data directory.
pub const USAGE: &str = "usage.json";
/// The gateways that share the limits over Redis, in the data directory.
pub const FLEET: &str = "fleet.json";
/// Units spent without Redis and not claimed yet, in the data directory.
pub const UNCLAIMED: &str = "unclaimed.json";
/// The number of starts, in the data directory.
pub const STARTS: &str = "place-starts";

/// The files that are renamed at the start if they are damaged.
pub const FILES: [&str; 7] = [PLACE, REPLICA, KEYRING, USAGE, FLEET, UNCLAIMED, STARTS];
/// The suffix of a renamed damaged file.
pub const SUFFIX: &str = ".damaged";

/// Opens a file; a damaged one is renamed, and a new one is created.
///
/// # Errors
/// The file cannot be opened for another reason: it is in use, or the disk or its permissions do not allow it.
pub fn open<T>(path: &Path, open: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let facts = std::fs::metadata(path);
    if path.symlink_metadata().is_ok() && !facts.as_ref().is_ok_and(std::fs::Metadata::is_file) {
        quarantine(path, &facts.map_or_else(anyhow::Error::from, |_| anyhow::anyhow!("it is not a regular file")))?;
    }
    // The database library panics on some damage.
    let opened = catch_unwind(AssertUnwindSafe(&open));
    let error = match opened.unwrap_or_else(|_| Err(anyhow::anyhow!("reading {} panicked", path.display()))) {
        Err(error) if is_damage(&error) && path.exists() => error,
        other => return other,
    };
    quarantine(path, &error)?;
    open()
}

/// Whether the file's contents are the cause, not the disk or its permissions.
fn is_damage(error: &anyhow::Error) -> bool {
    let is_disk_error = |error: &std::io::Error| {
        use ErrorKind::{NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        matches!(error.kind(), NotFound | PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull)
    };
    match error.downcast_ref::<redb::Error>() {
        Some(redb::Error::DatabaseAlreadyOpen) => false,
        Some(redb::Error::Io(error)) => !is_disk_error(error),
        _ => !error.chain().filter_map(|cause| cause.downcast_ref()).any(is_disk_error),
    }
}

/// The contents of a small file; `None` if it does not exist. A file that cannot be read or exceeds `bytes_max` is
/// renamed.
pub fn read(path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
    let read = read_if_there(path, bytes_max).unwrap_or_else(|error| {
        if let Err(error) = quarantine(path, &error) {
            tracing::error!(
                error = format!("{error:#}"),
                "cannot rename a damaged file; starting without its contents"
            );
        }
        None
    });
    read.map(|bytes| bytes.to_vec())
}

/// Renames a damaged file, and replaces one that was renamed before.
///
/// # Errors
/// The directory cannot be written.
pub fn quarantine(path: &Path, error: &anyhow::Error) -> anyhow::Result<()> {
    let kept = kept_as(path);
    let renamed = std::fs::rename(path, &kept).or_else(|error| match kept.symlink_metadata() {
        // rename(2) does not replace a file, or a directory that is not empty, with a directory.
        Ok(facts) if facts.is_dir() => std::fs::remove_dir_all(&kept).and_then(|()| std::fs::rename(path, &kept)),
        Ok(_) => std::fs::remove_file(&kept).and_then(|()| std::fs::rename(path, &kept)),
        Err(_) => Err(error),
    });
    renamed.with_context(|| format!("renaming the damaged file {}", path.display()))?;
    tracing::error!(
        file = %path.display(),
        kept_as = %kept.display(),
        error = format!("{error:#}"),
        "renamed a damaged file; starting without its contents. Check the disk, then remove the renamed file"
    );
    Ok(())
}

/// The new path of a damaged file.
pub fn kept_as(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(SUFFIX);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    /// Kinds of damaged files; each is renamed after each other kind, so that it replaces the earlier one.
    const KINDS: [&str; 8] = [
        "pipe",
        "endless device",
        "empty device",
        "directory",
        "full directory",
        "dangling link",
        "link to itself",
        "large",
    ];

    const BYTES_MAX: u64 = 100;

    fn put(kind: &str, path: &Path) {
        match kind {
            "pipe" => assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
            "endless device" => symlink("/dev/zero", path).unwrap(),
            "empty device" => symlink("/dev/null", path).unwrap(),
            "directory" => std::fs::create_dir(path).unwrap(),
            "full directory" => std::fs::create_dir_all(path.join("below")).unwrap(),
            "dangling link" => symlink("nothing/here", path).unwrap(),
            "link to itself" => symlink(path, path).unwrap(),
            _ => std::fs::File::create(path).unwrap().set_len(BYTES_MAX + 1).unwrap(),
        }
    }

    #[test]
    fn damaged_and_special_files_are_renamed_over_the_earlier_copy() {
        for before in KINDS {
            for kind in KINDS {
                let directory = tempfile::tempdir().unwrap();
                let path = directory.path().join("file");
                for kind in [before, kind] {
                    put(kind, &path);
                    assert_eq!(read(&path, BYTES_MAX), None, "{kind} after {before}");
                    assert!(path.symlink_metadata().is_err(), "{kind} after {before}: it is gone");
                    assert!(kept_as(&path).symlink_metadata().is_ok(), "{kind} after {before}: it is kept");
                }
                std::fs::write(&path, "good").unwrap();
                assert_eq!(read(&path, BYTES_MAX).as_deref(), Some(b"good".as_slice()));
            }
        }
    }

    #[test]
    fn an_opened_file_may_be_large_and_must_be_a_regular_file() {
        for kind in KINDS.into_iter().filter(|kind| *kind != "large") {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("file");
            put(kind, &path);
            let opened = open(&path, || Ok(std::fs::File::options().create_new(true).write(true).open(&path)?));
            assert!(opened.is_ok(), "{kind}: {opened:?}");
            assert!(kept_as(&path).symlink_metadata().is_ok(), "{kind}: it is kept");
        }
    }
}
