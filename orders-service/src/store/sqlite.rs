//! Orders in one SQLite file.
//!
//! Reading asks the pool of reading connections and never waits for a writer. Writing goes through one task
//! ([`writer`]) that commits what waits together. When the file is locked, full or damaged, the error says which, and
//! nothing that was acknowledged is lost: `synchronous = FULL` and the write-ahead log see to it.

mod apply;
mod import;
mod outbox;
mod page;
mod row;
#[cfg(test)]
mod tests;
mod transaction;
mod writer;

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use chassis::sqlite::Sqlite;
use contract::project::ProjectId;
use contract::time::UnixMillis;
use sqlx::Row as _;
use tokio::sync::oneshot;

use self::writer::{Job, Writer};
use super::{
    ChangeError, CreateError, Created, Edition, Event, EventKind, FaultKind, IMPORT_WAIT_MAX, Idempotency, ImportError,
    NewOrder, OrderStore, PageQuery, StoreError, Summary, WAIT_MAX, Waiting,
};
use crate::order::{CancelError, Order, ShipError, Status};

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// The embedded store.
pub struct SqliteOrders {
    database: Sqlite,
    writer: Writer,
    mark: String,
}

impl SqliteOrders {
    /// Opens (or makes) the file, brings its schema up to date and starts the writer.
    ///
    /// # Errors
    /// When the file cannot be opened, is damaged, or was written by a newer version.
    pub async fn open(path: &Path) -> anyhow::Result<Self> {
        let database = Sqlite::open(path).await?;
        database.migrate(&MIGRATIONS).await?;
        let mark = mark_of(&database).await.with_context(|| format!("reading {}", path.display()))?;
        let writer = Writer::start(database.write.clone());
        Ok(Self { database, writer, mark })
    }

    async fn write<T>(&self, wait: Duration, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.writer.submit(job(reply))?;
        match tokio::time::timeout(wait, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(StoreError::new(FaultKind::Other, "the writer stopped before it answered")),
            Err(_) => Err(StoreError::new(FaultKind::Busy, "the writer did not answer in time")),
        }
    }
}

/// The database's mark, made on first start.
async fn mark_of(database: &Sqlite) -> anyhow::Result<String> {
    let fresh = chassis::random::bytes::<8>()?.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    sqlx::query("INSERT INTO installation (one, mark) VALUES (1, $1) ON CONFLICT (one) DO NOTHING")
        .bind(&fresh)
        .execute(&database.write)
        .await?;
    Ok(sqlx::query_scalar("SELECT mark FROM installation WHERE one = 1").fetch_one(&database.write).await?)
}

/// A read with its deadline.
async fn within<T>(read: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
    match tokio::time::timeout(WAIT_MAX, read).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(StoreError::new(FaultKind::Busy, "the database did not answer in time")),
    }
}

#[async_trait]
impl OrderStore for SqliteOrders {
    fn mark(&self) -> &str {
        &self.mark
    }

    async fn edition(&self, project: &ProjectId) -> Result<Edition, StoreError> {
        let row = within(
            sqlx::query("SELECT version, orders FROM stores WHERE project = $1")
                .bind(project.as_str())
                .fetch_optional(&self.database.read),
        )
        .await?;
        match row {
            Some(row) => Ok(Edition { version: row.try_get(0)?, orders: row.try_get(1)? }),
            None => Ok(Edition::default()),
        }
    }

    async fn batch(&self, project: &ProjectId, after: Option<i64>, limit: u32) -> Result<Vec<Order>, StoreError> {
        // Two texts and not one with an "or": each is a plain walk along the primary key.
        let first = "SELECT id, pet_id, quantity, ship_date_micros, complete, status, checksum FROM orders \
                     WHERE project = $1 ORDER BY id LIMIT $2";
        let next = "SELECT id, pet_id, quantity, ship_date_micros, complete, status, checksum FROM orders \
                    WHERE project = $1 AND id > $3 ORDER BY id LIMIT $2";
        let query =
            sqlx::query(if after.is_some() { next } else { first }).bind(project.as_str()).bind(i64::from(limit));
        let query = match after {
            Some(after) => query.bind(after),
            None => query,
        };
        let rows = within(query.fetch_all(&self.database.read)).await?;
        rows.iter().map(|row| row::read(project, row)).collect()
    }

    async fn page(&self, project: &ProjectId, query: &PageQuery) -> Result<Vec<Order>, StoreError> {
        page::read(&self.database.read, project, query).await
    }

    async fn find(&self, project: &ProjectId, id: i64) -> Result<Option<Order>, StoreError> {
        let found =
            within(sqlx::query(row::SELECT_ONE).bind(project.as_str()).bind(id).fetch_optional(&self.database.read));
        found.await?.map(|row| row::read(project, &row)).transpose()
    }

    async fn events(&self, project: &ProjectId, id: i64) -> Result<Option<Vec<Event>>, StoreError> {
        if self.find(project, id).await?.is_none() {
            return Ok(None);
        }
        let text = "SELECT event, at_millis FROM order_events WHERE project = $1 AND order_id = $2 ORDER BY sequence";
        let rows = within(sqlx::query(text).bind(project.as_str()).bind(id).fetch_all(&self.database.read)).await?;
        let events = rows.iter().map(|row| {
            let word: &str = row.try_get(0)?;
            let kind = EventKind::ALL.into_iter().find(|kind| kind.as_str() == word);
            let kind = kind.ok_or_else(|| StoreError::corrupt(format!("an event of order {id} is {word:?}")))?;
            Ok(Event { kind, at: UnixMillis(row.try_get(1)?) })
        });
        events.collect::<Result<_, StoreError>>().map(Some)
    }

    async fn knows_pet(&self, project: &ProjectId, pet_id: i64) -> Result<bool, StoreError> {
        let text = "SELECT id FROM orders WHERE project = $1 AND pet_id = $2 LIMIT 1";
        let found = within(sqlx::query(text).bind(project.as_str()).bind(pet_id).fetch_optional(&self.database.read));
        Ok(found.await?.is_some())
    }

    async fn summary(&self, project: &ProjectId) -> Result<Summary, StoreError> {
        let text = "SELECT status, COUNT(*) FROM orders WHERE project = $1 GROUP BY status";
        let rows = within(sqlx::query(text).bind(project.as_str()).fetch_all(&self.database.read)).await?;
        let mut summary = Summary::default();
        for row in rows {
            let count = row.try_get(1)?;
            match row::status(row.try_get(0)?)? {
                Status::Pending => summary.pending = count,
                Status::Shipped => summary.shipped = count,
                Status::Cancelled => summary.cancelled = count,
            }
        }
        Ok(summary)
    }

    async fn cancel(&self, project: &ProjectId, id: i64, at: UnixMillis) -> Result<Order, ChangeError<CancelError>> {
        let project = project.clone();
        self.write(WAIT_MAX, |reply| Job::Cancel { project, id, at, reply }).await?
    }

    async fn ship(&self, project: &ProjectId, id: i64, at: UnixMillis) -> Result<Order, ChangeError<ShipError>> {
        let project = project.clone();
        self.write(WAIT_MAX, |reply| Job::Ship { project, id, at, reply }).await?
    }

    async fn create(
        &self,
        project: &ProjectId,
        order: NewOrder,
        idempotency: Option<Idempotency>,
        at: UnixMillis,
    ) -> Result<Created, CreateError> {
        let project = project.clone();
        self.write(WAIT_MAX, |reply| Job::Create { project, order, idempotency, at, reply }).await?
    }

    async fn import(&self, project: &ProjectId, orders: Vec<Order>) -> Result<u64, ImportError> {
        let project = project.clone();
        self.write(IMPORT_WAIT_MAX, |reply| Job::Import { project, orders, reply }).await?
    }

    async fn untold(&self, limit: u32) -> Result<Waiting, StoreError> {
        outbox::read(&self.database.read, limit).await
    }

    async fn forget(&self, told: Vec<i64>, keep: u32) -> Result<u64, StoreError> {
        self.write(WAIT_MAX, |reply| Job::Forget { told, keep, reply }).await?
    }

    async fn close(&self) {
        self.writer.stop().await;
        self.database.close().await;
    }
}
