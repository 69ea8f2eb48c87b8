//! The quota: over Redis for several nodes, or over the embedded store with a file that keeps its counts over a
//! restart.
//!
//! The file is written once a second and at the end. A killed process loses at most a second of counts, and the window
//! then admits that much more: the documented bound of the embedded store. Over Redis one file holds the number of
//! gateways, for a start while Redis is down, and one what was admitted without Redis and not claimed yet, each second.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chassis::clock::Clock;
use chassis::metrics::{self, Registry};
use chassis::secret::write_private;
use chassis::supervise::Supervisor;
use parking_lot::Mutex;
use serde::Serialize;

use crate::config::Config;
use crate::place;
use quota::Quota;
use quota::settings::QuotaSettings;
use quota::store::memory::{BUCKETS_MAX, MemoryStore, Snapshot};
use quota::store::redis::{CallMetrics, RESULTS, RedisStore};
use replica::damage::{self, FLEET, UNCLAIMED, USAGE};

/// The files for the next start.
pub(super) struct UsageFile {
    known: Known,
    place: PlaceFile,
}

/// A file that is replaced if its contents changed.
struct KeptFile {
    path: PathBuf,
    written: Mutex<Vec<u8>>,
}

impl KeptFile {
    fn new(path: PathBuf) -> Self {
        Self { path, written: Mutex::default() }
    }

    /// Writes the value. If the disk is full, the next start has an old file; requests continue.
    fn write(&self, value: &impl Serialize) {
        let Ok(text) = serde_json::to_vec(value) else { return };
        let mut written = self.written.lock();
        if *written == text {
            return;
        }
        match write_private(&self.path, &text) {
            Ok(()) => *written = text,
            Err(error) => {
                let file = self.path.display();
                tracing::warn!(
                    error = format!("{error:#}"), %file,
                    "cannot save quota counts to a file; retrying. Free space on the disk, or check it"
                );
            }
        }
    }
}

/// The identity of the data directory on disk.
struct PlaceFile {
    directory: PathBuf,
    quota: Quota,
    written: AtomicU64,
}

impl PlaceFile {
    fn new(directory: PathBuf, quota: Quota) -> Self {
        let written = AtomicU64::new(quota.place());
        Self { directory, quota, written }
    }

    /// Writes the identity if the node has a new one.
    fn write(&self) {
        let (place, written) = (self.quota.place(), self.written.load(Ordering::Relaxed));
        if place == written {
            return;
        }
        let directory = self.directory.display();
        let (before, now) = (format!("{written:016x}"), format!("{place:016x}"));
        match place::replace(&self.directory, place) {
            Ok(()) => {
                self.written.store(place, Ordering::Relaxed);
                tracing::error!(
                    data_directory = %directory, %before, %now,
                    "another gateway uses a copy of this data directory; gave this one a new identity and continued to count. \
                     Start each gateway with its own data directory, never with a copy"
                );
            }
            Err(error) => tracing::error!(
                error = format!("{error:#}"), data_directory = %directory,
                "another gateway uses a copy of this data directory, and the new identity of this one cannot be written; \
                 retrying every second"
            ),
        }
    }
}

enum Known {
    /// The counts of the embedded store.
    Counts(Arc<MemoryStore>, KeptFile),
    /// Over Redis: the number of gateways that share the limits, and the units that were not claimed.
    Shared { quota: Quota, fleet: KeptFile, unclaimed: KeptFile },
}

impl UsageFile {
    /// Writes the files whose contents changed.
    pub(super) fn write(&self) {
        self.place.write();
        match &self.known {
            Known::Counts(store, file) => file.write(&store.export()),
            Known::Shared { quota, fleet, unclaimed } => {
                fleet.write(&quota.fleet());
                unclaimed.write(&quota.unclaimed());
            }
        }
    }
}

/// The largest file of counts: a kilobyte for each bucket, which has one component.
const USAGE_BYTES_MAX: u64 = BUCKETS_MAX as u64 * 1_024;

/// Larger than any file of a few numbers.
const FLEET_BYTES_MAX: u64 = 4_096;

/// The largest file of unclaimed units: half a kilobyte for each project.
const UNCLAIMED_BYTES_MAX: u64 = quota::UNCLAIMED_MAX as u64 * 512;

/// How long the start waits for Redis. Without Redis the gateway starts and counts as in any outage.
const CONNECT_WAIT: Duration = Duration::from_secs(1);

/// The quota over the configured store.
pub(super) async fn open(
    config: &Config,
    place: u64,
    clock: Arc<dyn Clock>,
    (registry, tasks): (&Registry, &Supervisor),
) -> anyhow::Result<(Quota, UsageFile)> {
    let calls = call_metrics(registry)?;
    let mut settings = QuotaSettings::new(u64::from_le_bytes(chassis::random::bytes()?));
    let directory = config.data_directory.clone();
    (settings.place, settings.start) = (place, place::count_start(&directory));
    settings.on_store_down = config.quota.on_store_down;
    settings.ban.switch = config.quota.bans;
    if let Some(redis) = &config.quota.redis {
        settings.call_budget = redis.call_budget;
        let [fleet, unclaimed] = [FLEET, UNCLAIMED].map(|name| KeptFile::new(directory.join(name)));
        settings.fleet =
            damage::read(&fleet.path, FLEET_BYTES_MAX).and_then(|text| serde_json::from_slice(&text).ok()).flatten();
        if let Some(text) = damage::read(&unclaimed.path, UNCLAIMED_BYTES_MAX) {
            settings.unclaimed = serde_json::from_slice(&text).unwrap_or_else(|error| {
                let file = unclaimed.path.display();
                tracing::error!(
                    %error, %file,
                    "the file of uncharged requests is damaged; requests admitted without Redis before this start are \
                     not charged. Check the disk"
                );
                BTreeMap::new()
            });
        }
        let store = RedisStore::start(redis.clone(), settings.process, calls, tasks);
        if let Err(outage) = store.connected(CONNECT_WAIT).await {
            tracing::warn!(reason = %outage, "cannot reach the quota store (Redis); starting without it and retrying");
        }
        let quota = Quota::new(Arc::new(store), settings, clock);
        let known = Known::Shared { quota: quota.clone(), fleet, unclaimed };
        return Ok((quota.clone(), UsageFile { known, place: PlaceFile::new(directory, quota) }));
    }
    let (store, path) = embedded(config, clock.clone());
    let quota = Quota::new(store.clone(), settings, clock);
    let known = Known::Counts(store, KeptFile::new(path));
    Ok((quota.clone(), UsageFile { known, place: PlaceFile::new(directory, quota) }))
}

fn call_metrics(registry: &Registry) -> anyhow::Result<CallMetrics> {
    let calls = metrics::counter_vec(
        registry,
        "edge_quota_store_calls_total",
        "Calls to the quota store (Redis), by result.",
        &["result"],
    )?;
    for result in RESULTS {
        calls.with_label_values(&[result]);
    }
    let seconds = metrics::latency_vec(
        registry,
        "edge_quota_store_call_seconds",
        "Duration of answered calls to the quota store.",
        &[],
    )?;
    Ok(CallMetrics { calls, seconds: seconds.with_label_values(&[] as &[&str]) })
}

/// The embedded store, with the counts of the last run.
fn embedded(config: &Config, clock: Arc<dyn Clock>) -> (Arc<MemoryStore>, PathBuf) {
    let store = Arc::new(MemoryStore::new(clock, BUCKETS_MAX));
    let path = config.data_directory.join(USAGE);
    if let Some(text) = damage::read(&path, USAGE_BYTES_MAX) {
        match serde_json::from_slice::<Snapshot>(&text) {
            Ok(counts) => {
                let buckets = store.import(counts);
                tracing::info!(buckets, "restored the quota counts of the previous process");
            }
            // A damaged file does not stop the gateway from starting: it logs an error and counts from zero.
            Err(error) => {
                tracing::error!(
                    %error, file = %path.display(),
                    "the usage file is damaged; quota counts start at zero. Check the disk"
                );
            }
        }
    }
    (store, path)
}
