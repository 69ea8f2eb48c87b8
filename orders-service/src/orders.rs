//! The operators' functions on orders: import, export, ship, count.
//!
//! The internal listener offers them over HTTP; a process that embeds the service calls them directly.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chassis::sql::Location;
use contract::project::ProjectUid;
use contract::time::UnixMillis;
use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::Semaphore;

use crate::import::{Collector, ImportFailure};
use crate::json;
use crate::order::{Order, ShipError};
use crate::scan::Scan;
use crate::store::{ChangeError, OrderStore, StoreError, Summary};

/// Longest wait for the next piece of an import.
const PIECE_WAIT_MAX: Duration = Duration::from_secs(30);

/// The orders of all projects. Clones share one store.
#[derive(Clone)]
pub struct Orders {
    store: Arc<OrderStore>,
    /// Allows one import at a time: each can hold [`crate::import::ORDERS_MAX`] orders in memory.
    importing: Arc<Semaphore>,
}

impl Orders {
    /// Opens the database, or creates it if it is missing.
    ///
    /// # Errors
    /// If it cannot be opened, is damaged, or was written by a newer version.
    pub async fn open(database: &Location) -> anyhow::Result<Self> {
        let store = Arc::new(OrderStore::open(database).await?);
        Ok(Self { store, importing: Arc::new(Semaphore::new(1)) })
    }

    /// The store.
    pub fn store(&self) -> Arc<OrderStore> {
        self.store.clone()
    }

    /// Imports JSON lines, all or none: the five fields of an order and `status` (default: pending). Returns the
    /// number.
    ///
    /// # Errors
    /// [`ImportFailure`]; nothing was imported.
    pub async fn import<E: std::fmt::Display>(
        &self,
        project: &ProjectUid,
        lines: impl Stream<Item = Result<Bytes, E>> + Send,
    ) -> Result<u64, ImportFailure> {
        let _permit = self.importing.try_acquire().map_err(|_| ImportFailure::InProgress)?;
        let mut lines = std::pin::pin!(lines);
        let mut collector = Collector::default();
        loop {
            match tokio::time::timeout(PIECE_WAIT_MAX, lines.next()).await {
                Ok(None) => break,
                Ok(Some(Ok(piece))) => collector.feed(&piece)?,
                Ok(Some(Err(error))) => return Err(ImportFailure::Broken(error.to_string())),
                Err(_) => {
                    let seconds = PIECE_WAIT_MAX.as_secs();
                    return Err(ImportFailure::Broken(format!("no data arrived for {seconds} seconds")));
                }
            }
        }
        let (orders, numbers) = collector.finish()?;
        let ids: Vec<i64> = orders.iter().map(|order| order.id).collect();
        self.store.import(project, orders).await.map_err(|error| numbers.explain(error, &ids))
    }

    /// All orders of a project as JSON lines in id order, in the format of [`Orders::import`]. An error ends the
    /// stream.
    pub fn export(&self, project: &ProjectUid) -> impl Stream<Item = Result<Bytes, StoreError>> + Send + 'static {
        enum Export {
            Begin(Arc<OrderStore>, ProjectUid),
            Scan(Scan),
        }
        stream::try_unfold(Export::Begin(self.store.clone(), project.clone()), |export| async move {
            let mut scan = match export {
                Export::Begin(store, project) => Scan::begin(store, project).await?,
                Export::Scan(scan) => scan,
            };
            Ok(scan.next().await?.map(|orders| (json::lines(&orders), Export::Scan(scan))))
        })
    }

    /// Ships a pending order.
    ///
    /// # Errors
    /// If the order is unknown or not pending, or if the store fails.
    pub async fn ship(&self, project: &ProjectUid, id: i64, at: UnixMillis) -> Result<Order, ChangeError<ShipError>> {
        self.store.ship(project, id, at).await
    }

    /// The number of the project's orders in each state.
    pub async fn summary(&self, project: &ProjectUid) -> Result<Summary, StoreError> {
        self.store.summary(project).await
    }

    /// Writes the queued changes and closes the store. Later calls fail.
    pub async fn close(&self) {
        self.store.close().await;
    }
}
