//! Damaged files of the data directory: the gateway sets them aside at its start and goes on without their contents.
//!
//! A file that was set aside stays until an operator removes it, one per name; `/status` and a metric show it. Any
//! other unreadable file of the directory counts as absent.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The file with the node's identity, in the data directory.
pub(crate) const PLACE: &str = "place";
/// The file with the replica, in the data directory.
pub(crate) const REPLICA: &str = "replica.redb";

/// The files that are set aside if damaged.
pub(crate) const FILES: [&str; 2] = [PLACE, REPLICA];
/// The suffix of a damaged file.
pub(crate) const SUFFIX: &str = ".damaged";

/// Opens a file; a damaged one is set aside and created anew.
///
/// # Errors
/// The file cannot be opened for another reason: it is in use, or the disk or its permissions do not allow it.
pub(crate) fn open<T>(path: &Path, open: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<T> {
    // The database library panics on some damage.
    let opened = catch_unwind(AssertUnwindSafe(&open));
    let error = match opened.unwrap_or_else(|_| Err(anyhow::anyhow!("reading {} panicked", path.display()))) {
        Err(error) if is_damage(&error) && path.exists() => error,
        other => return other,
    };
    set_aside(path, &error)?;
    open()
}

/// Whether the file's contents are the cause, not the disk or its permissions.
fn is_damage(error: &anyhow::Error) -> bool {
    let of_the_disk = |error: &std::io::Error| {
        use ErrorKind::{NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        matches!(error.kind(), NotFound | PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull)
    };
    match error.downcast_ref::<redb::Error>() {
        Some(redb::Error::DatabaseAlreadyOpen) => false,
        Some(redb::Error::Io(error)) => !of_the_disk(error),
        _ => !error.chain().filter_map(|cause| cause.downcast_ref()).any(of_the_disk),
    }
}

/// Renames a damaged file; replaces an earlier one.
///
/// # Errors
/// The directory cannot be written.
pub(crate) fn set_aside(path: &Path, error: &anyhow::Error) -> anyhow::Result<()> {
    let kept = kept_as(path);
    std::fs::rename(path, &kept).with_context(|| format!("setting the damaged file {} aside", path.display()))?;
    tracing::error!(
        file = %path.display(),
        kept_as = %kept.display(),
        error = format!("{error:#}"),
        "damaged file set aside; starting without its contents. Check the disk, then remove the renamed file"
    );
    Ok(())
}

/// The new path of a damaged file.
pub(crate) fn kept_as(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(SUFFIX);
    PathBuf::from(name)
}
