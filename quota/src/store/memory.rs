//! The embedded store: buckets in this process's memory, for one node.
//!
//! It is always available, with one exception: when it is full of buckets that are still needed, another project's
//! bucket is refused ([`StoreOutage::Full`]); an existing one is never dropped. A restart would hand out a fresh day;
//! [`MemoryStore::export`] and [`MemoryStore::import`] carry the charges over. Charges after the last export before a
//! crash are lost: export often, and after the final hand-back.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use async_trait::async_trait;
use contract::project::ProjectUid;
use contract::time::UnixMillis;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{Fleet, HeartbeatReply, Store, StoreOutage};
use crate::ledger::bucket::{Bucket, BucketView, StoreState};
use crate::ledger::{Incarnation, Reply, Statement};
use chassis::clock::Clock;

/// Buckets kept by default: about 250 bytes each.
pub const BUCKETS_MAX: usize = 200_000;

/// Independent locks, so that projects do not block each other.
const SHARDS: usize = 64;

/// Charges that outlive the process, as written to disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// Every bucket that is still needed.
    pub buckets: Vec<(ProjectUid, Bucket)>,
}

/// The in-process store.
pub struct MemoryStore {
    shards: Vec<Mutex<HashMap<ProjectUid, Bucket>>>,
    shard_max: usize,
    hasher: RandomState,
    clock: Arc<dyn Clock>,
}

impl MemoryStore {
    /// An empty store for at most `buckets_max` projects (rounded up to a multiple of its locks).
    pub fn new(clock: Arc<dyn Clock>, buckets_max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shard_max: buckets_max.div_ceil(SHARDS).max(1),
            hasher: RandomState::new(),
            clock,
        }
    }

    /// Exports the charges worth keeping over a restart. Locks one shard at a time, so requests hardly wait.
    pub fn export(&self) -> Snapshot {
        let now = self.clock.now();
        let mut buckets = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let alive = shard.iter().filter(|(_, bucket)| !bucket.is_over(now));
            buckets.extend(alive.map(|(project, bucket)| (project.clone(), bucket.clone())));
        }
        Snapshot { buckets }
    }

    /// Imports the charges of an earlier process, before the first request. Skips buckets that are over, buckets
    /// already here, and those beyond the capacity; returns how many were imported.
    pub fn import(&self, snapshot: Snapshot) -> usize {
        let now = self.clock.now();
        let mut taken = 0;
        for (project, bucket) in snapshot.buckets {
            let Some(shard) = self.shard(&project) else { continue };
            let mut shard = shard.lock();
            if !bucket.is_over(now) && !shard.contains_key(&project) && shard.len() < self.shard_max {
                shard.insert(project, bucket);
                taken += 1;
            }
        }
        taken
    }

    /// Number of buckets.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Whether nothing was charged yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, project: &ProjectUid) -> Option<&Mutex<HashMap<ProjectUid, Bucket>>> {
        let hash = usize::try_from(self.hasher.hash_one(project) % SHARDS as u64).unwrap_or(0);
        self.shards.get(hash)
    }

    fn apply(&self, project: &ProjectUid, statement: &Statement) -> Result<Reply, StoreOutage> {
        let mut shard = self.shard(project).ok_or(StoreOutage::Full)?.lock();
        // Read under the lock: statements of one bucket see the clock in their order of execution.
        let around = StoreState {
            now: self.clock.now(),
            incarnation: Incarnation::default(),
            learning_until: UnixMillis(i64::MIN),
        };
        if let Some(bucket) = shard.get_mut(project) {
            return Ok(bucket.apply(statement, &around));
        }
        if shard.len() >= self.shard_max {
            shard.retain(|_, bucket| !bucket.is_over(around.now));
            if shard.len() >= self.shard_max {
                return Err(StoreOutage::Full);
            }
        }
        Ok(shard.entry(project.clone()).or_insert_with(|| Bucket::new(&around)).apply(statement, &around))
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn execute(&self, bucket: &ProjectUid, statement: Statement) -> Result<Reply, StoreOutage> {
        self.apply(bucket, &statement)
    }

    async fn heartbeat(&self, _count: bool) -> Result<HeartbeatReply, StoreOutage> {
        let (now, fleet) = (self.clock.now(), Some(Fleet::SINGLE));
        Ok(HeartbeatReply { incarnation: Incarnation::default(), now, fleet, full: None })
    }

    fn has_own_clock(&self) -> bool {
        false
    }

    async fn view(&self, bucket: &ProjectUid) -> Result<Option<BucketView>, StoreOutage> {
        let now = self.clock.now();
        Ok(self.shard(bucket).and_then(|shard| shard.lock().get(bucket).map(|bucket| bucket.view(now))))
    }
}
