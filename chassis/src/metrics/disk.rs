//! Free disk space, read at each scrape, so that it is never stale.

use std::path::{Path, PathBuf};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, Registry};

/// The fraction of the file system at `path` that this process may still fill, 0 to 1. No sample if it is unknown.
///
/// # Errors
/// If the name is taken or malformed: a programming mistake, found at start.
pub fn free_disk(registry: &Registry, name: &str, path: &Path) -> anyhow::Result<()> {
    let gauge = Gauge::new(name, "The part of the disk with this process's data that is free, 0 to 1.")?;
    Ok(registry.register(Box::new(FreeDisk { gauge, path: path.to_owned() }))?)
}

struct FreeDisk {
    gauge: Gauge,
    path: PathBuf,
}

impl Collector for FreeDisk {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // A directory that does not exist yet is on the disk of its parent.
        let place = self.path.ancestors().find(|place| place.exists());
        let disk = place.and_then(|place| rustix::fs::statvfs(place).ok()).filter(|disk| disk.f_blocks > 0);
        let Some(disk) = disk else { return Vec::new() };
        self.gauge.set(ratio(disk.f_bavail, disk.f_blocks));
        self.gauge.collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of large numbers needs few of their digits")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "test_disk_free_ratio";

    fn metric(path: &Path) -> Option<f64> {
        let registry = Registry::new();
        free_disk(&registry, NAME, path).unwrap();
        let text = crate::metrics::render(&registry).unwrap();
        text.lines().find_map(|line| line.strip_prefix(NAME)?.strip_prefix(' ')).map(|value| value.parse().unwrap())
    }

    #[test]
    fn free_space_has_a_metric_for_a_directory_that_exists_and_for_one_to_be_made() {
        let directory = tempfile::tempdir().unwrap();
        let free = metric(directory.path()).unwrap();
        assert!((0.0..=1.0).contains(&free), "{free}");
        assert!(metric(&directory.path().join("not/yet")).is_some());
        // The kernel's own file system, which has no blocks.
        assert_eq!(metric(Path::new("/proc")), None);
    }
}
