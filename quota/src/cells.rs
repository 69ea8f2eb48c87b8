//! The buckets of this node and who waits for them, bounded.

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
use super::ledger::{Life, NodeId};

/// Independent locks of the map.
const SHARDS: usize = 64;

/// How a wait for the store ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Served {
    /// The store decided.
    Step(Step),
    /// The store gave no answer.
    Outage,
    /// Too many wait, or this one has waited too long, while the store is at work: what it grants meanwhile is not
    /// known, so deciding alone could spend the same units twice.
    Busy,
}

/// One bucket and those who wait for it.
pub(super) struct Cell {
    /// Whose it is.
    pub(super) project: ProjectUid,
    state: Mutex<CellState>,
    /// Whether the cell is in the queue of those that owe the store a statement.
    watched: AtomicBool,
}

/// What a cell's lock protects.
pub(super) struct CellState {
    /// What is known of the bucket.
    pub(super) bucket: NodeBucket,
    /// Requests that wait for the store, first come first served; bounded by the settings.
    pub(super) waiting: VecDeque<oneshot::Sender<Served>>,
    /// A task is at work for those who wait.
    pub(super) driven: bool,
}

impl CellState {
    /// Gives all requests that wait the same answer. A client that has gone away needs none.
    pub(super) fn answer_all(&mut self, served: Served) {
        for waiting in self.waiting.drain(..) {
            let _ = waiting.send(served);
        }
    }
}

impl Cell {
    /// Bytes of one cell.
    #[cfg(test)]
    pub(super) const fn size() -> usize {
        size_of::<Self>()
    }

    /// The cell's state. Never held across a wait.
    pub(super) fn lock(&self) -> MutexGuard<'_, CellState> {
        self.state.lock()
    }
}

type Shard = RwLock<HashMap<ProjectUid, Arc<Cell>>>;

/// All cells.
pub(super) struct Cells {
    /// Who speaks for buckets that are met from now on.
    me: RwLock<NodeId>,
    shards: Vec<Shard>,
    shard_max: usize,
    hasher: RandomState,
    /// Cells that owe the store a statement: bounded by the number of cells, each is in it once.
    watched: Mutex<VecDeque<Arc<Cell>>>,
}

impl Cells {
    /// No cells yet; at most `buckets_max` of them, rounded up to a multiple of the locks.
    pub(super) fn new(me: NodeId, buckets_max: usize) -> Self {
        Self {
            me: RwLock::new(me),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            shard_max: buckets_max.div_ceil(SHARDS).max(1),
            hasher: RandomState::new(),
            watched: Mutex::default(),
        }
    }

    /// The cell of a project, if it has one.
    pub(super) fn find(&self, project: &ProjectUid) -> Option<Arc<Cell>> {
        self.shard(project)?.read().get(project).cloned()
    }

    /// The cell of a project, made when missing. `None` when all the room is taken by cells that are in use.
    pub(super) fn get(&self, project: &ProjectUid, limits: Limits, now: Duration) -> Option<Arc<Cell>> {
        let shard = self.shard(project)?;
        if let Some(cell) = shard.read().get(project) {
            return Some(Arc::clone(cell));
        }
        let mut shard = shard.write();
        if let Some(cell) = shard.get(project) {
            return Some(Arc::clone(cell));
        }
        if shard.len() >= self.shard_max && !self.make_room(&mut shard, now) {
            return None;
        }
        let state = CellState { bucket: NodeBucket::new(self.me(), limits), waiting: VecDeque::new(), driven: false };
        let cell = Cell { project: project.clone(), state: Mutex::new(state), watched: AtomicBool::new(false) };
        Some(Arc::clone(shard.entry(project.clone()).or_insert(Arc::new(cell))))
    }

    /// Who speaks for buckets that are met from now on.
    pub(super) fn me(&self) -> NodeId {
        *self.me.read()
    }

    /// A new life, greater than all before.
    pub(super) fn begin_life(&self) -> NodeId {
        let mut me = self.me.write();
        me.life.stay = me.life.stay.saturating_add(1);
        *me
    }

    /// Another place, because another process speaks for `displaced`. Once for each place that is lost.
    pub(super) fn leave_place(&self, displaced: NodeId, random: u64) -> NodeId {
        let mut me = self.me.write();
        if me.place == displaced.place {
            me.place = me.place.rotate_left(32) ^ random;
            me.life = Life { start: 1, ..me.life };
        }
        *me
    }

    /// Every cell there is.
    pub(super) fn all(&self) -> Vec<Arc<Cell>> {
        self.shards.iter().flat_map(|shard| shard.read().values().cloned().collect::<Vec<_>>()).collect()
    }

    /// Puts a cell that owes the store a statement on the list, once.
    pub(super) fn watch(&self, cell: &Arc<Cell>) {
        if !cell.watched.swap(true, Ordering::AcqRel) {
            self.watched.lock().push_back(Arc::clone(cell));
        }
    }

    /// Takes the list of cells that owed the store a statement. Those that still do must be put on it again.
    pub(super) fn take_watched(&self) -> Vec<Arc<Cell>> {
        let cells = std::mem::take(&mut *self.watched.lock());
        cells.into_iter().inspect(|cell| cell.watched.store(false, Ordering::Release)).collect()
    }

    /// Forgets an eighth of a shard, as far as its cells are idle and owe nothing, so that a full map is not searched
    /// for every newcomer.
    fn make_room(&self, shard: &mut HashMap<ProjectUid, Arc<Cell>>, now: Duration) -> bool {
        let mut quota = (self.shard_max / 8).max(1);
        let before = shard.len();
        shard.retain(|_, cell| {
            // Nobody can get hold of the cell meanwhile: that takes the lock of the shard.
            let idle = quota > 0 && Arc::strong_count(cell) == 1 && {
                let state = cell.lock();
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
