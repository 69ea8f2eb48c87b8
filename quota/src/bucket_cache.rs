//! The cache of this node's buckets and of the requests that wait for them, bounded.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use contract::plan::Limits;
use contract::project::ProjectUid;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::oneshot;

use super::ledger::node::{NodeBucket, Step};
use super::ledger::{Generation, NodeId};

/// Independent locks of the cache.
const SHARDS: usize = 64;

/// How a wait for the store ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaitResult {
    /// The store decided.
    Step(Step),
    /// The store did not reply.
    Outage,
    /// Too many requests wait, or this one has waited too long, while the store works. Its pending grant is unknown, so
    /// a local decision could spend the same units twice.
    Busy,
}

/// One bucket and the requests that wait for it.
pub(super) struct CachedBucket {
    /// The project.
    pub(super) project: ProjectUid,
    state: Mutex<CachedState>,
    /// Whether the bucket is queued, because the store must receive a statement about it.
    watched: AtomicBool,
}

/// The state that the lock protects.
pub(super) struct CachedState {
    /// The node's view of the bucket.
    pub(super) bucket: NodeBucket,
    /// Requests that wait for the store, in order of arrival; bounded by the settings.
    pub(super) waiting: VecDeque<oneshot::Sender<WaitResult>>,
    /// A task serves the waiting requests.
    pub(super) driven: bool,
}

impl CachedState {
    /// Sends the same result to all waiting requests.
    pub(super) fn answer_all(&mut self, served: WaitResult) {
        for waiting in self.waiting.drain(..) {
            let _ = waiting.send(served);
        }
    }
}

impl CachedBucket {
    fn new(project: &ProjectUid, bucket: NodeBucket) -> Arc<Self> {
        let state = CachedState { bucket, waiting: VecDeque::new(), driven: false };
        Arc::new(Self { project: project.clone(), state: Mutex::new(state), watched: AtomicBool::new(false) })
    }

    /// Size of a cached bucket in bytes.
    #[cfg(test)]
    pub(super) const fn size() -> usize {
        size_of::<Self>()
    }

    /// Locks the state. Never hold the lock across an await.
    pub(super) fn lock(&self) -> MutexGuard<'_, CachedState> {
        self.state.lock()
    }
}

type Shard = RwLock<HashMap<ProjectUid, Arc<CachedBucket>>>;

/// All cached buckets.
pub(super) struct BucketCache {
    /// This node's identity in statements about newly cached buckets.
    me: RwLock<NodeId>,
    shards: Vec<Shard>,
    shard_max: usize,
    hasher: RandomState,
    /// Buckets about which the store must receive a statement. Each is queued once.
    watched: Mutex<VecDeque<Arc<CachedBucket>>>,
    /// Held while buckets are taken out of the queue and put back.
    sweeping: Mutex<()>,
}

impl BucketCache {
    /// An empty cache for at most `buckets_max` buckets, rounded up to a multiple of the locks.
    pub(super) fn new(me: NodeId, buckets_max: usize) -> Self {
        Self {
            me: RwLock::new(me),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            shard_max: buckets_max.div_ceil(SHARDS).max(1),
            hasher: RandomState::new(),
            watched: Mutex::default(),
            sweeping: Mutex::default(),
        }
    }

    /// The cached bucket of a project.
    pub(super) fn find(&self, project: &ProjectUid) -> Option<Arc<CachedBucket>> {
        self.shard(project)?.read().get(project).cloned()
    }

    /// The cached bucket of a project, added if missing. `None` if the cache is full of buckets in use.
    pub(super) fn get(&self, project: &ProjectUid, limits: Limits, now: Duration) -> Option<Arc<CachedBucket>> {
        let shard = self.shard(project)?;
        if let Some(cached) = shard.read().get(project) {
            return Some(Arc::clone(cached));
        }
        let mut shard = shard.write();
        if let Some(cached) = shard.get(project) {
            return Some(Arc::clone(cached));
        }
        if shard.len() >= self.shard_max && !self.make_room(&mut shard, now) {
            return None;
        }
        let cached = CachedBucket::new(project, NodeBucket::new(self.me(), limits));
        Some(Arc::clone(shard.entry(project.clone()).or_insert(cached)))
    }

    /// Adds the bucket of a project that is not cached yet, unless its part of the cache is full.
    pub(super) fn restore(&self, project: &ProjectUid, bucket: NodeBucket) {
        let Some(mut shard) = self.shard(project).map(RwLock::write).filter(|shard| shard.len() < self.shard_max)
        else {
            return;
        };
        let cached = CachedBucket::new(project, bucket);
        self.watch(&cached);
        shard.insert(project.clone(), cached);
    }

    /// The buckets about which the store must receive a statement: all of them, also during a sweep.
    pub(super) fn watched(&self) -> Vec<Arc<CachedBucket>> {
        let _between_sweeps = self.sweeping.lock();
        self.watched.lock().iter().cloned().collect()
    }

    /// This node's identity in statements about newly cached buckets.
    pub(super) fn me(&self) -> NodeId {
        *self.me.read()
    }

    /// Begins a new generation, greater than all before.
    pub(super) fn begin_life(&self) -> NodeId {
        let mut me = self.me.write();
        me.generation.stay = me.generation.stay.saturating_add(1);
        *me
    }

    /// Takes another place, because another process uses `displaced`. Changes once for each lost place.
    pub(super) fn leave_place(&self, displaced: NodeId, random: u64) -> NodeId {
        let mut me = self.me.write();
        if me.place == displaced.place {
            me.place = me.place.rotate_left(32) ^ random;
            me.generation = Generation { start: 1, ..me.generation };
        }
        *me
    }

    /// Every cached bucket.
    pub(super) fn all(&self) -> Vec<Arc<CachedBucket>> {
        self.shards.iter().flat_map(|shard| shard.read().values().cloned().collect::<Vec<_>>()).collect()
    }

    /// Queues a bucket about which the store must receive a statement, once.
    pub(super) fn watch(&self, cached: &Arc<CachedBucket>) {
        if !cached.watched.swap(true, Ordering::AcqRel) {
            self.watched.lock().push_back(Arc::clone(cached));
        }
    }

    /// Removes the buckets from the queue for which `owes` is false. Callers of [`Self::watch`] do not wait meanwhile.
    pub(super) fn sweep(&self, owes: impl Fn(&Arc<CachedBucket>) -> bool) {
        let _sweeping = self.sweeping.lock();
        let buckets = std::mem::take(&mut *self.watched.lock());
        for cached in buckets {
            // First: a task that changes the bucket from here on queues it again.
            cached.watched.store(false, Ordering::Release);
            if owes(&cached) {
                self.watch(&cached);
            }
        }
    }

    /// Drops idle buckets that need no statement, up to an eighth of the shard, so that a full shard is not searched
    /// for every new bucket.
    fn make_room(&self, shard: &mut HashMap<ProjectUid, Arc<CachedBucket>>, now: Duration) -> bool {
        let mut quota = (self.shard_max / 8).max(1);
        let before = shard.len();
        shard.retain(|_, cached| {
            // No other task can obtain the bucket meanwhile: that takes the shard's lock.
            let idle = quota > 0 && Arc::strong_count(cached) == 1 && {
                let state = cached.lock();
                state.waiting.is_empty() && state.bucket.is_forgettable(now)
            };
            quota -= usize::from(idle);
            !idle
        });
        self.begin_life();
        shard.len() < before
    }

    fn shard(&self, project: &ProjectUid) -> Option<&Shard> {
        self.shards.get(usize::try_from(self.hasher.hash_one(project) % SHARDS as u64).unwrap_or(0))
    }
}
