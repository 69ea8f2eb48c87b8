//! How much memory the process has for itself, and how much it may have.
//!
//! What counts is what only this process holds (`RssAnon`): pages of files can be dropped by the kernel at any time. The
//! limit is the configured one, else that of the control group as its own files say, looked at anew every time because it
//! can be changed while the process runs.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where the figures come from.
#[derive(Clone, Debug)]
pub struct Memory {
    bytes_max: Option<u64>,
    control_group: PathBuf,
    status: PathBuf,
}

impl Memory {
    /// With a limit of its own, or with that of the control group whose files are in this directory.
    pub fn new(bytes_max: Option<u64>, control_group: PathBuf) -> Self {
        Self { bytes_max, control_group, status: PathBuf::from("/proc/self/status") }
    }

    /// How it is now.
    pub fn look(&self) -> Look {
        let Ok(limit) = self.bytes_max.map_or_else(|| limit_of(&self.control_group), |limit| Ok(Some(limit))) else {
            return Look::InVain;
        };
        let Some(limit) = limit.filter(|limit| *limit > 0) else {
            return Look::Unlimited;
        };
        let used = std::fs::read_to_string(&self.status).ok().and_then(|status| own(&status));
        used.map_or(Look::InVain, |used| Look::Seen(Seen { used, limit }))
    }
}

/// What a look at the memory says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// So much of it is used.
    Seen(Seen),
    /// There is no limit, stated or of a control group.
    Unlimited,
    /// The system does not say.
    InVain,
}

/// What is used of the memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    used: u64,
    limit: u64,
}

impl Seen {
    /// Thousandths of the limit that are used.
    pub fn thousandths(self) -> u64 {
        self.used.saturating_mul(1_000) / self.limit
    }

    /// Bytes that are left until these thousandths of the limit are used.
    pub fn left_until(self, thousandths: u64) -> u64 {
        (self.limit / 1_000).saturating_mul(thousandths).saturating_sub(self.used)
    }
}

/// The limit of version 2, or of version 1, where it is "unlimited" by being larger than any machine.
fn limit_of(group: &Path) -> Result<Option<u64>, Unreadable> {
    const UNLIMITED: u64 = 1 << 60;
    for file in ["memory.max", "memory.limit_in_bytes", "memory/memory.limit_in_bytes"] {
        match std::fs::read_to_string(group.join(file)) {
            Ok(text) if text.trim() == "max" => return Ok(None),
            Ok(text) => {
                let limit = text.trim().parse::<u64>().map_err(|_| Unreadable)?;
                return Ok(Some(limit).filter(|limit| *limit < UNLIMITED));
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(_) => return Err(Unreadable),
        }
    }
    Ok(None)
}

/// A limit that is there and does not say what it is.
struct Unreadable;

/// Bytes of the line `RssAnon:   1234 kB`.
fn own(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(limit: Option<&str>, file: &str, bytes_max: Option<u64>, status: &str) -> Look {
        let directory = tempfile::tempdir().unwrap();
        let status_file = directory.path().join("status");
        std::fs::write(&status_file, status).unwrap();
        if let Some(limit) = limit {
            std::fs::create_dir_all(directory.path().join("memory")).unwrap();
            std::fs::write(directory.path().join(file), limit).unwrap();
        }
        Memory { bytes_max, control_group: directory.path().to_owned(), status: status_file }.look()
    }

    const USED: u64 = 512 * 1_024;
    const STATUS: &str = "Name:\tgateway\nVmRSS:\t  90000 kB\nRssAnon:\t    512 kB\nRssFile:\t 80000 kB\n";

    #[test]
    fn the_limit_is_the_stated_one_or_that_of_the_group() {
        for file in ["memory.max", "memory.limit_in_bytes", "memory/memory.limit_in_bytes"] {
            let seen = Seen { used: USED, limit: 1_048_576 };
            assert_eq!(look(Some("1048576\n"), file, None, STATUS), Look::Seen(seen), "{file}");
            assert_eq!(seen.thousandths(), 500);
        }
        let stated = Seen { used: USED, limit: 524_288 };
        assert_eq!(look(Some("1048576\n"), "memory.max", Some(524_288), STATUS), Look::Seen(stated));
        assert_eq!(stated.thousandths(), 1_000);
    }

    #[test]
    fn what_is_left_is_counted_to_where_something_begins() {
        let seen = Seen { used: 500_000, limit: 1_000_000 };
        assert_eq!((seen.left_until(920), seen.left_until(500), seen.left_until(0)), (420_000, 0, 0));
    }

    #[test]
    fn no_limit_is_not_the_same_as_a_figure_that_cannot_be_read() {
        assert_eq!(look(Some("max\n"), "memory.max", None, STATUS), Look::Unlimited);
        assert_eq!(look(Some("9223372036854771712\n"), "memory.limit_in_bytes", None, STATUS), Look::Unlimited);
        assert_eq!(look(None, "", None, STATUS), Look::Unlimited);
        assert_eq!(look(None, "", Some(0), STATUS), Look::Unlimited);
        assert_eq!(look(Some(""), "memory.max", None, STATUS), Look::InVain);
        assert_eq!(look(None, "", Some(1), "RssAnon: some kB\n"), Look::InVain);
        assert_eq!(look(None, "", Some(1), ""), Look::InVain);
    }

    #[test]
    fn this_process_has_some_memory() {
        assert!(matches!(Memory::new(Some(1 << 40), PathBuf::new()).look(), Look::Seen(_)));
    }
}
