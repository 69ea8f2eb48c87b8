//! The identity of a place: one data directory, used by one gateway process at a time.
//!
//! A restarted process over the same directory is the same place. The control plane has one record per place, so a
//! removal waits for the new process only. The quota store has one component of a bucket per place, so restarts add
//! none.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use chassis::secret::{read_if_there, write_private};

use replica::damage::{self, STARTS};

/// In the data directory: the identity, 16 hexadecimal digits, and the fingerprint of the directory.
const FILE: &str = damage::PLACE;

/// Larger than any identity with its fingerprint.
const BYTES_MAX: u64 = 4_096;

/// The identity of the place with this data directory: 64 random bits, created at the first start and kept for ever.
///
/// A file that cannot be read or has no identity (damaged by a full disk, for example) is renamed. A file that was
/// copied from another directory, whose gateway may still run, is replaced. Both are logged: for the fleet this is a
/// new place, as with an empty directory. `before_new` runs before a new identity is written: after a crash the
/// directory is no longer new.
///
/// # Errors
/// The directory cannot be read or written, or `before_new` fails.
pub(crate) fn identity(directory: &Path, before_new: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<u64> {
    let path = directory.join(FILE);
    match read_if_there(&path, BYTES_MAX) {
        Ok(None) => {}
        Ok(Some(bytes)) => match std::str::from_utf8(&bytes).ok().and_then(parse) {
            Some((identity, of)) if of == fingerprint(directory)? => return Ok(identity),
            Some(_) => tracing::warn!(
                file = %path.display(),
                "this data directory is a copy of another one; giving it a new identity. Removals wait for the gateway of the \
                 original directory until it reports again or was silent for 24 hours; if it is gone for good, revoke its credential"
            ),
            None => damage::quarantine(&path, &anyhow::anyhow!("the file contains no valid identity"))?,
        },
        Err(error) => damage::quarantine(&path, &error)?,
    }
    before_new()?;
    let identity = u64::from_le_bytes(chassis::random::bytes()?);
    replace(directory, identity)?;
    Ok(identity)
}

/// The properties that a copy of a directory does not share: its inode number and its creation time. A copy of the
/// whole file system shares both.
fn fingerprint(directory: &Path) -> anyhow::Result<String> {
    let metadata = std::fs::metadata(directory)?;
    let made = metadata.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    Ok(format!("{:x}-{:x}", metadata.ino(), made.as_nanos()))
}

/// Gives the place another identity, because a process over a copy of the directory uses this one.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn replace(directory: &Path, identity: u64) -> anyhow::Result<()> {
    chassis::durable::create_directories(directory)?;
    write_private(&directory.join(FILE), format!("{identity:016x} {}\n", fingerprint(directory)?).as_bytes())
}

/// Counts a start of the place in a file; returns the number of starts with this one, which a later process exceeds.
///
/// If it cannot be written (a full disk), the next start has the same number: its process is then treated as one over a
/// copy of the directory, and becomes a new place.
pub(crate) fn count_start(directory: &Path) -> u32 {
    let path = directory.join(STARTS);
    let before = damage::read(&path, BYTES_MAX);
    let before = before.and_then(|text| std::str::from_utf8(&text).ok()?.trim_end().parse::<u32>().ok());
    let start = before.unwrap_or(0).saturating_add(1);
    if let Err(error) = write_private(&path, format!("{start}\n").as_bytes()) {
        tracing::warn!(error = format!("{error:#}"), file = %path.display(), "cannot write the number of starts; the next start may take a new identity");
    }
    start
}

fn parse(text: &str) -> Option<(u64, &str)> {
    let (digits, fingerprint) = text.trim_end().split_once(' ')?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())?.map(|identity| (identity, fingerprint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(directory: &Path) -> anyhow::Result<u64> {
        super::identity(directory, || Ok(()))
    }

    #[test]
    fn a_place_keeps_its_identity_and_each_directory_has_its_own() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = identity(here.path()).unwrap();
        assert_eq!(identity(here.path()).unwrap(), first);
        assert_ne!(identity(there.path()).unwrap(), first);
        let new = here.path().join("new");
        assert_eq!(identity(&new).unwrap(), identity(&new).unwrap());
        // A directory that is moved is the same, and a copy is another one.
        std::fs::copy(here.path().join(FILE), there.path().join(FILE)).unwrap();
        let second = identity(there.path()).unwrap();
        assert_ne!(second, first);
        let moved = here.path().with_extension("moved");
        std::fs::rename(here.path(), &moved).unwrap();
        assert_eq!(identity(&moved).unwrap(), first);
        std::fs::rename(&moved, here.path()).unwrap();
    }

    #[test]
    fn every_start_has_a_greater_number_and_a_copy_has_the_same_next_one() {
        let (here, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert_eq!((count_start(here.path()), count_start(here.path())), (1, 2));
        std::fs::copy(here.path().join(STARTS), copy.path().join(STARTS)).unwrap();
        assert_eq!((count_start(here.path()), count_start(copy.path())), (3, 3));
        std::fs::write(here.path().join(STARTS), "damaged").unwrap();
        assert_eq!(count_start(here.path()), 1);
    }

    #[test]
    fn a_place_may_be_given_another_identity() {
        let directory = tempfile::tempdir().unwrap();
        let first = identity(directory.path()).unwrap();
        replace(directory.path(), !first).unwrap();
        assert_eq!(identity(directory.path()).unwrap(), !first);
    }

    #[test]
    fn a_damaged_file_is_a_new_place() {
        let directory = tempfile::tempdir().unwrap();
        let first = identity(directory.path()).unwrap();
        let path = directory.path().join(FILE);
        let is_new = |damaged: &[u8]| {
            let new = identity(directory.path()).unwrap();
            assert_ne!(new, first, "{damaged:?}");
            assert_eq!(identity(directory.path()).unwrap(), new);
        };
        for damaged in ["", "not a number 16b", "123", "00000000000000000", "0000000000000000", "\u{fffd}"] {
            std::fs::write(&path, damaged).unwrap();
            is_new(damaged.as_bytes());
            assert_eq!(std::fs::read_to_string(directory.path().join("place.damaged")).unwrap(), damaged);
        }
        for damaged in [b"0000000000000000 1-2".as_slice(), &[0xff; 34], &[b'0'; 5_000]] {
            std::fs::write(&path, damaged).unwrap();
            is_new(damaged);
        }
        std::fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        is_new(b"a pipe");
    }
}
