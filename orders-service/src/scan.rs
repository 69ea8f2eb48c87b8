//! A scan through all orders of a project, one batch at a time.
//!
//! Between two batches nothing is held: no connection, no lock, no snapshot. So a slow reader costs one batch of
//! memory and nothing else. Lists take turns at reading, so that however many there are, they wait for each other and
//! leave connections to everybody else. What a reader sees: every order that existed at the beginning exactly once, in id order,
//! each as it was when its batch was read; orders added meanwhile appear when their id is still ahead. If nothing
//! changed on the way, the number of orders is compared with the store's own count, and a list that came out short is
//! an error instead of an answer.

use std::sync::Arc;
use std::time::Duration;

use contract::project::ProjectUid;
use tokio::sync::Semaphore;

use crate::order::Order;
use crate::store::{Edition, FaultKind, OrderStore, StoreError};

/// Orders of the first batch: few, so that the first byte is quick and a small list is one answer.
const FIRST_BATCH: u32 = 256;

/// Orders of every further batch: about 200 kB as JSON.
const BATCH: u32 = 2_048;

/// Batches that all lists of the process read at the same time: half of the embedded store's connections for reading,
/// and more than two processors have work with.
const READING_MAX: usize = 4;

/// Who reads next: first come, first served.
static TURNS: Semaphore = Semaphore::const_new(READING_MAX);

/// How long a list waits for its turn: a little less than the gateway waits for the next bytes of a response.
const TURN_WAIT_MAX: Duration = Duration::from_secs(9);

/// A scan in progress.
pub(crate) struct Scan {
    store: Arc<dyn OrderStore>,
    project: ProjectUid,
    edition: Edition,
    after: Option<i64>,
    seen: i64,
    finished: bool,
}

impl Scan {
    /// At the beginning, knowing which edition it walks through.
    pub(crate) async fn begin(store: Arc<dyn OrderStore>, project: ProjectUid) -> Result<Self, StoreError> {
        let edition = store.edition(&project).await?;
        Ok(Self { store, project, edition, after: None, seen: 0, finished: false })
    }

    /// The project's edition when the scan began.
    pub(crate) fn edition(&self) -> Edition {
        self.edition
    }

    /// Whether every order has been handed out.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    /// The next orders, possibly none; `None` when the scan is over.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Order>>, StoreError> {
        if self.finished {
            return Ok(None);
        }
        let limit = if self.after.is_none() { FIRST_BATCH } else { BATCH };
        let batch = self.read(limit).await?;
        let length = u32::try_from(batch.len()).unwrap_or(u32::MAX);
        self.seen += i64::from(length);
        for order in &batch {
            // A damaged page may show an order twice, and another one not at all.
            if self.after.is_some_and(|before| before >= order.id) {
                return Err(StoreError::corrupt(format!("orders of project {} are out of order", self.project)));
            }
            self.after = Some(order.id);
        }
        if length < limit {
            self.check_complete().await?;
            self.finished = true;
        }
        Ok(Some(batch))
    }

    async fn read(&self, limit: u32) -> Result<Vec<Order>, StoreError> {
        let Ok(Ok(_turn)) = tokio::time::timeout(TURN_WAIT_MAX, TURNS.acquire()).await else {
            return Err(StoreError::new(FaultKind::Busy, "too many lists are being read"));
        };
        self.store.batch(&self.project, self.after, limit).await
    }

    async fn check_complete(&self) -> Result<(), StoreError> {
        let edition = self.store.edition(&self.project).await?;
        if edition.version == self.edition.version && edition.orders != self.seen {
            return Err(StoreError::corrupt(format!(
                "project {} has {} orders, but only {} can be read",
                self.project, edition.orders, self.seen
            )));
        }
        Ok(())
    }
}
