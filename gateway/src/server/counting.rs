//! The quota of a single node: the embedded store, and the file that lets its counts survive a restart.
//!
//! The file is written once a second and at the end. A process killed in between forgets at most a second of counting;
//! the limit of the window then admits that much again, which is the stated bound of the embedded store.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use chassis::clock::Clock;
use chassis::secret::write_private;
use contract::time::UnixMillis;
use parking_lot::Mutex;

use crate::config::Config;
use crate::quota::Quota;
use crate::quota::clock::QuotaClock;
use crate::quota::settings::QuotaSettings;
use crate::quota::store::memory::{BUCKETS_MAX, MemoryStore, Snapshot};

/// The process's clock as the ledger wants it.
struct LedgerClock(Arc<dyn Clock>);

impl QuotaClock for LedgerClock {
    fn wall(&self) -> UnixMillis {
        self.0.now()
    }

    fn monotonic(&self) -> std::time::Duration {
        self.0.monotonic()
    }
}

/// The file of counts.
pub(super) struct UsageFile {
    path: PathBuf,
    store: Arc<MemoryStore>,
    written: Mutex<Vec<u8>>,
}

impl UsageFile {
    /// Writes the counts if they changed. A disk that is full costs the counts of a restart, not a request.
    pub(super) fn write(&self) {
        let Ok(counts) = serde_json::to_vec(&self.store.export()) else { return };
        let mut written = self.written.lock();
        if *written == counts {
            return;
        }
        match write_private(&self.path, &counts) {
            Ok(()) => *written = counts,
            Err(error) => tracing::warn!(error = format!("{error:#}"), "usage could not be written"),
        }
    }
}

/// The ledger over the embedded store, with the counts of an earlier life.
pub(super) fn open(config: &Config, clock: Arc<dyn Clock>) -> anyhow::Result<(Quota, UsageFile)> {
    let clock: Arc<dyn QuotaClock> = Arc::new(LedgerClock(clock));
    let store = Arc::new(MemoryStore::new(clock.clone(), BUCKETS_MAX));
    let path = config.data_directory.join("usage.json");
    if path.exists() {
        let text = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        match serde_json::from_slice::<Snapshot>(&text) {
            Ok(counts) => {
                let buckets = store.import(counts);
                tracing::info!(buckets, "counts of an earlier life are back");
            }
            // A damaged file must not keep the edge from starting: counts begin at zero, and that is said.
            Err(error) => {
                tracing::error!(%error, file = %path.display(), "the usage file is damaged; counts begin at zero");
            }
        }
    }
    let mut settings = QuotaSettings::new(u64::from_le_bytes(chassis::random::bytes()?));
    settings.on_store_down = config.quota.on_store_down;
    settings.ban.switch = config.quota.bans;
    let quota = Quota::new(store.clone(), settings, clock);
    Ok((quota, UsageFile { path, store, written: Mutex::default() }))
}
