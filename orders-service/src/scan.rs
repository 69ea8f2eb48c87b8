//! Reads all orders of a project in batches.
//!
//! Between two batches the scan holds no connection, lock or snapshot, so a slow reader costs the memory of one batch.
//! A semaphore limits how many scans read at the same time; the remaining connections stay free for other requests. A
//! reader gets every order that existed at the start exactly once, in id order, in its state when its batch was read.
//! An order added during the scan appears if its id is larger than the last one read. If no order changed during the
//! scan, the scan compares the number of orders with the store's own count and fails if orders are missing.

use std::sync::Arc;
use std::time::Duration;

use contract::project::ProjectUid;
use tokio::sync::Semaphore;

use crate::order::Order;
use crate::store::{Edition, FaultKind, OrderStore, StoreError};

/// Orders in the first batch: few, so that the first byte is sent early and a short list needs one read.
const FIRST_BATCH: u32 = 256;

/// Orders in each further batch: about 200 kB as JSON.
const BATCH: u32 = 2_048;

/// Batches read at the same time by all scans of the process: half of the embedded store's read connections.
const READING_MAX: usize = 4;

/// Permits to read a batch, granted first come, first served.
static READ_PERMITS: Semaphore = Semaphore::const_new(READING_MAX);

/// Longest wait for a permit: slightly shorter than the gateway's wait for the next bytes of a response.
const PERMIT_WAIT_MAX: Duration = Duration::from_secs(9);

/// A scan in progress.
pub(crate) struct Scan {
    store: Arc<OrderStore>,
    project: ProjectUid,
    edition: Edition,
    after: Option<i64>,
    seen: i64,
    finished: bool,
}

impl Scan {
    /// Starts a scan of the project's current edition.
    pub(crate) async fn begin(store: Arc<OrderStore>, project: ProjectUid) -> Result<Self, StoreError> {
        let edition = store.edition(&project).await?;
        Ok(Self { store, project, edition, after: None, seen: 0, finished: false })
    }

    /// The project's edition at the start of the scan.
    pub(crate) fn edition(&self) -> Edition {
        self.edition
    }

    /// Whether `next` has returned every order.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    /// The next batch, possibly empty; `None` after the last one.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Order>>, StoreError> {
        if self.finished {
            return Ok(None);
        }
        let limit = if self.after.is_none() { FIRST_BATCH } else { BATCH };
        let batch = self.read(limit).await?;
        let length = u32::try_from(batch.len()).unwrap_or(u32::MAX);
        self.seen += i64::from(length);
        for order in &batch {
            // A damaged page can return one order twice and skip another.
            if self.after.is_some_and(|before| before >= order.id) {
                return Err(StoreError::corrupt(format!("the orders of project {} are not sorted", self.project)));
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
        let Ok(Ok(_permit)) = tokio::time::timeout(PERMIT_WAIT_MAX, READ_PERMITS.acquire()).await else {
            return Err(StoreError::new(FaultKind::Busy, "too many lists are read at the same time"));
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
