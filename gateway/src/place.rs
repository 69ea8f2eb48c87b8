//! The identity of a place: one data directory, which one gateway process uses at a time.
//!
//! A process that is restarted over the same directory is the same place. The control plane keeps one record for a place, so
//! a removal waits for the new process and no longer for the dead one before it.

use std::path::Path;

use chassis::secret::write_private;

/// The file in the data directory: 16 hexadecimal digits.
const FILE: &str = "place";

/// The identity of the place with this data directory: 64 random bits, made at the first start and kept for ever.
///
/// A file that is not an identity (damaged by a full disk, say) is replaced, and the log says so: for the fleet this is a
/// new place, as it is with an empty directory.
pub(crate) fn identity(directory: &Path) -> anyhow::Result<u64> {
    let path = directory.join(FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            if let Some(identity) = parse(&text) {
                return Ok(identity);
            }
            tracing::error!(file = %path.display(), "the place file is damaged; starting as a new place");
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(anyhow::Error::new(error).context(format!("reading {}", path.display()))),
    }
    let identity = u64::from_le_bytes(chassis::random::bytes()?);
    write_private(&path, format!("{identity:016x}\n").as_bytes())?;
    Ok(identity)
}

fn parse(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('\n').unwrap_or(text);
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_keeps_its_identity_and_each_directory_has_its_own() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = identity(here.path()).unwrap();
        assert_eq!(identity(here.path()).unwrap(), first);
        assert_ne!(identity(there.path()).unwrap(), first);
    }

    #[test]
    fn a_damaged_file_is_a_new_place() {
        let directory = tempfile::tempdir().unwrap();
        let first = identity(directory.path()).unwrap();
        for damaged in ["", "not a number 16b", "123", "00000000000000000"] {
            std::fs::write(directory.path().join(FILE), damaged).unwrap();
            let new = identity(directory.path()).unwrap();
            assert_ne!(new, first, "{damaged:?}");
            assert_eq!(identity(directory.path()).unwrap(), new);
        }
    }
}
