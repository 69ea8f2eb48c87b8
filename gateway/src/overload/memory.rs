//! The memory that the process uses alone, and its limit.
//!
//! Counted is the memory that only this process holds (`RssAnon`), and the socket buffers of its control group: the
//! kernel charges both, and can reclaim neither. File pages can be reclaimed at any time. The limit is the configured
//! one, else the lowest of the control group and its parents, read from their files: a container's, or `MemoryMax` of a
//! systemd unit or slice. They are read each time, because they can change while the process runs.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The sources of the figures.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    bytes_max: Option<u64>,
    control_groups: PathBuf,
    membership: PathBuf,
    status: PathBuf,
}

impl Memory {
    /// With a configured limit, or that of the control group below this directory.
    pub(crate) fn new(bytes_max: Option<u64>, control_groups: PathBuf) -> Self {
        let of_process = |file: &str| Path::new("/proc/self").join(file);
        Self { bytes_max, control_groups, membership: of_process("cgroup"), status: of_process("status") }
    }

    /// Reads the current figures.
    pub(crate) fn read(&self) -> Reading {
        // If the group is unknown, the top one is used.
        let membership = std::fs::read_to_string(&self.membership).unwrap_or_default();
        let groups = groups(&self.control_groups, &membership);
        let Ok(of_groups) = lowest_limit(&groups) else { return Reading::Failed };
        let Some(limit) = self.bytes_max.or(of_groups).filter(|limit| *limit > 0) else {
            return Reading::Unlimited;
        };
        // A group without a limit may contain many processes.
        let sockets = of_groups.and_then(|_| groups.iter().find_map(|group| sockets(group))).unwrap_or(0);
        let own = std::fs::read_to_string(&self.status).ok().and_then(|status| own(&status));
        own.map_or(Reading::Failed, |own| Reading::Limited(MemoryUse { used: own.saturating_add(sockets), limit }))
    }
}

/// The groups that the process is in and that limit memory, the innermost first; always includes the top one.
fn groups(top: &Path, membership: &str) -> Vec<PathBuf> {
    let mut groups = Vec::new();
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let base = match controllers {
            "" => top.to_owned(),
            _ if controllers.split(',').any(|controller| controller == "memory") => top.join("memory"),
            _ => continue,
        };
        let own = base.join(path.trim_start_matches('/'));
        // A path outside of a container's view is ignored.
        groups.extend(
            own.ancestors()
                .take_while(|group| group.starts_with(&base))
                .filter(|group| group.is_dir())
                .map(Path::to_owned),
        );
    }
    groups.push(top.to_owned());
    groups
}

/// The lowest limit of these groups.
fn lowest_limit(groups: &[PathBuf]) -> Result<Option<u64>, Unreadable> {
    let limits = groups.iter().map(|group| limit_of(group)).collect::<Result<Vec<_>, _>>()?;
    Ok(limits.into_iter().flatten().min())
}

/// Bytes in the group's socket buffers (version 2 only).
fn sockets(group: &Path) -> Option<u64> {
    let figures = std::fs::read_to_string(group.join("memory.stat")).ok()?;
    figures.lines().find_map(|line| line.strip_prefix("sock ")?.trim().parse().ok())
}

/// The result of a memory check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The memory used, and its limit.
    Limited(MemoryUse),
    /// There is no limit, configured or of a control group.
    Unlimited,
    /// The figures cannot be read.
    Failed,
}

/// The memory used, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryUse {
    used: u64,
    limit: u64,
}

impl MemoryUse {
    /// Used thousandths of the limit.
    pub(crate) fn thousandths(self) -> u64 {
        self.used.saturating_mul(1_000) / self.limit
    }

    /// The limit in bytes.
    pub(crate) fn limit(self) -> u64 {
        self.limit
    }

    /// Bytes left until these thousandths of the limit are used.
    pub(crate) fn left_until(self, thousandths: u64) -> u64 {
        (self.limit / 1_000).saturating_mul(thousandths).saturating_sub(self.used)
    }
}

/// The limit in version 2, or in version 1, where a huge value means "unlimited".
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

/// A limit exists but cannot be parsed.
struct Unreadable;

/// Bytes of the line `RssAnon:   1234 kB`.
fn own(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(limit: Option<&str>, file: &str, bytes_max: Option<u64>, status: &str) -> Reading {
        let directory = tempfile::tempdir().unwrap();
        let status_file = directory.path().join("status");
        std::fs::write(&status_file, status).unwrap();
        if let Some(limit) = limit {
            std::fs::create_dir_all(directory.path().join("memory")).unwrap();
            std::fs::write(directory.path().join(file), limit).unwrap();
        }
        let membership = directory.path().join("cgroup");
        Memory { bytes_max, control_groups: directory.path().to_owned(), membership, status: status_file }.read()
    }

    /// Checks memory with these files.
    fn reading_of(files: &[(&str, &str)], bytes_max: Option<u64>) -> Reading {
        let directory = tempfile::tempdir().unwrap();
        for (file, text) in files.iter().chain(&[("status", STATUS)]) {
            let path = directory.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let path = |file: &str| directory.path().join(file);
        Memory { bytes_max, control_groups: path("groups"), membership: path("cgroup"), status: path("status") }.read()
    }

    #[test]
    fn socket_buffers_of_the_group_count() {
        let files = [("groups/memory.max", "1048576"), ("groups/memory.stat", "anon 77\nsock 131072\nshmem 5\n")];
        assert_eq!(reading_of(&files, None), Reading::Limited(MemoryUse { used: USED + 131_072, limit: 1_048_576 }));
        assert_eq!(
            reading_of(&files, Some(900_000)),
            Reading::Limited(MemoryUse { used: USED + 131_072, limit: 900_000 })
        );
        // A group without a limit may be that of a whole machine.
        let files = [("groups/memory.max", "max"), ("groups/memory.stat", "sock 131072\n")];
        assert_eq!(reading_of(&files, Some(900_000)), Reading::Limited(MemoryUse { used: USED, limit: 900_000 }));
    }

    #[test]
    fn the_limit_of_a_systemd_unit_or_of_its_slice_is_found() {
        let unit = "groups/system.slice/tollhouse.service";
        let membership = ("cgroup", "0::/system.slice/tollhouse.service\n");
        let (of_unit, stat) = (format!("{unit}/memory.max"), format!("{unit}/memory.stat"));
        let memory_use = |used, limit| Reading::Limited(MemoryUse { used, limit });
        let files = [membership, (of_unit.as_str(), "2097152"), (stat.as_str(), "sock 4096\n")];
        assert_eq!(reading_of(&files, None), memory_use(USED + 4_096, 2_097_152));
        let files = [membership, (of_unit.as_str(), "max"), ("groups/system.slice/memory.max", "1048576")];
        assert_eq!(reading_of(&files, None), memory_use(USED, 1_048_576), "that of its slice");
        let files = [membership, (of_unit.as_str(), "2097152"), ("groups/system.slice/memory.max", "1048576")];
        assert_eq!(reading_of(&files, None), memory_use(USED, 1_048_576), "the lower one");
        let files = [("cgroup", "0::/not/seen/from/here\n"), ("groups/memory.max", "1048576")];
        assert_eq!(reading_of(&files, None), memory_use(USED, 1_048_576), "a container sees its own group at the top");
        let files = [
            ("cgroup", "4:cpu:/\n9:memory:/unit\n0::/\n"),
            ("groups/memory/unit/memory.limit_in_bytes", "1048576"),
            ("groups/memory/memory.limit_in_bytes", "9223372036854771712"),
        ];
        assert_eq!(reading_of(&files, None), memory_use(USED, 1_048_576), "version 1");
    }

    const USED: u64 = 512 * 1_024;
    const STATUS: &str = "Name:\tgateway\nVmRSS:\t  90000 kB\nRssAnon:\t    512 kB\nRssFile:\t 80000 kB\n";

    #[test]
    fn the_limit_is_the_stated_one_or_that_of_the_group() {
        for file in ["memory.max", "memory.limit_in_bytes", "memory/memory.limit_in_bytes"] {
            let memory_use = MemoryUse { used: USED, limit: 1_048_576 };
            assert_eq!(reading(Some("1048576\n"), file, None, STATUS), Reading::Limited(memory_use), "{file}");
            assert_eq!(memory_use.thousandths(), 500);
        }
        let stated = MemoryUse { used: USED, limit: 524_288 };
        assert_eq!(reading(Some("1048576\n"), "memory.max", Some(524_288), STATUS), Reading::Limited(stated));
        assert_eq!(stated.thousandths(), 1_000);
    }

    #[test]
    fn free_memory_is_counted_up_to_a_threshold() {
        let memory_use = MemoryUse { used: 500_000, limit: 1_000_000 };
        assert_eq!((memory_use.left_until(920), memory_use.left_until(500), memory_use.left_until(0)), (420_000, 0, 0));
    }

    #[test]
    fn no_limit_is_not_the_same_as_a_figure_that_cannot_be_read() {
        assert_eq!(reading(Some("max\n"), "memory.max", None, STATUS), Reading::Unlimited);
        assert_eq!(reading(Some("9223372036854771712\n"), "memory.limit_in_bytes", None, STATUS), Reading::Unlimited);
        assert_eq!(reading(None, "", None, STATUS), Reading::Unlimited);
        assert_eq!(reading(None, "", Some(0), STATUS), Reading::Unlimited);
        assert_eq!(reading(Some(""), "memory.max", None, STATUS), Reading::Failed);
        assert_eq!(reading(None, "", Some(1), "RssAnon: some kB\n"), Reading::Failed);
        assert_eq!(reading(None, "", Some(1), ""), Reading::Failed);
    }

    #[test]
    fn this_process_has_some_memory() {
        assert!(matches!(Memory::new(Some(1 << 40), PathBuf::new()).read(), Reading::Limited(_)));
    }
}
