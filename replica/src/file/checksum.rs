//! Checksums of stored entities, verified whenever one is read and once after each start: a changed byte on the disk
//! must not be one tenant's silent outage.
//! A file with a wrong entity still serves the others (`damaged`).

use anyhow::Context as _;
use aws_lc_rs::digest::{Context, SHA256};
use redb::{Database, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _};

use super::{File, Kind};

/// Bytes of the checksum behind each value. They are blanks, which JSON ignores: a version of the gateway without
/// checksums reads the same value.
const BYTES: usize = 32;

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
pub(crate) fn sealed(kind: Kind, key: &str, value: &[u8]) -> Vec<u8> {
    [value, checksum(kind, key, value).as_slice()].concat()
}

/// The value of a stored form. One without a checksum is of another version, and is not verified.
pub(crate) fn opened<'a>(kind: Kind, key: &str, stored: &'a [u8]) -> anyhow::Result<&'a [u8]> {
    if stored.ends_with(b"}") {
        return Ok(stored);
    }
    let name = kind.as_str();
    let whole = stored.split_last_chunk::<BYTES>().filter(|(value, sum)| **sum == checksum(kind, key, value));
    Ok(whole.with_context(|| format!("{key:?} in {name} does not match its checksum"))?.0)
}

impl File {
    /// Verifies every entity while `goes_on`: that it is found by its name, and its checksum.
    pub(crate) fn verify(&self, goes_on: impl Fn() -> bool) {
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
