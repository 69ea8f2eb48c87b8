//! Damaged files of the data directory: a start sets them aside and goes on without what they held.
//!
//! What is set aside stays beside its place until an operator removes it, one file for each name; `/status` and a metric say
//! so. All other files of the directory count as absent where they cannot be read.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The identity of the place, in the data directory.
pub(crate) const PLACE: &str = "place";
/// The replica, in the data directory.
pub(crate) const REPLICA: &str = "replica.redb";

/// The files that a start sets aside when they are damaged.
pub(crate) const FILES: [&str; 2] = [PLACE, REPLICA];
/// What follows the name of a damaged file.
pub(crate) const SUFFIX: &str = ".damaged";

/// Opens a file; one that is damaged is set aside and made anew.
///
/// # Errors
/// When the file cannot be opened for another reason: it is in use, or the disk or its rights do not allow it.
pub(crate) fn open<T>(path: &Path, open: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<T> {
    // The library of the database asserts some of what it reads.
    let opened = catch_unwind(AssertUnwindSafe(&open));
    let error = match opened.unwrap_or_else(|_| Err(anyhow::anyhow!("reading {} panicked", path.display()))) {
        Err(error) if is_damage(&error) && path.exists() => error,
        other => return other,
    };
    set_aside(path, &error)?;
    open()
}

/// Whether the contents of a file are to blame, and not its surroundings.
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

/// Renames a damaged file, in place of one that was set aside before.
///
/// # Errors
/// When the directory cannot be written.
pub(crate) fn set_aside(path: &Path, error: &anyhow::Error) -> anyhow::Result<()> {
    let kept = kept_as(path);
    std::fs::rename(path, &kept).with_context(|| format!("setting the damaged file {} aside", path.display()))?;
    tracing::error!(
        file = %path.display(),
        kept_as = %kept.display(),
        error = format!("{error:#}"),
        "damaged file set aside; starting without what it held. Check the disk, then remove the file that was kept"
    );
    Ok(())
}

/// Where a damaged file is kept.
pub(crate) fn kept_as(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(SUFFIX);
    PathBuf::from(name)
}
