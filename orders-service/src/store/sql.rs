//! Orders in a database: an SQLite file, or a PostgreSQL server that several replicas share. Both use the same queries.
//!
//! Reading asks the pool and never waits for a writer. Writing goes through tasks ([`writer`]), which commit all
//! waiting changes together. If the database is locked, full, damaged or unreachable, the error says which, and no
//! acknowledged change is lost: both databases confirm a commit when it is on disk. Nothing is cached between requests,
//! so every replica shows what another one has acknowledged.

mod apply;
mod erase;
mod import;
mod outbox;
mod page;
mod row;
#[cfg(test)]
mod tests;
mod writer;

use std::time::Duration;

use anyhow::Context as _;
use chassis::sql::{Database, Kind, Location, Migrations, query, query_as, query_scalar};
use contract::project::ProjectUid;
use contract::time::UnixMillis;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;

use self::writer::{CommitPermit, Job, Writer};
use super::{
    ChangeError, CreateError, Created, Edition, Event, FaultKind, IMPORT_WAIT_MAX, Idempotency, ImportError, NewOrder,
    PageQuery, StoreError, Summary, WAIT_MAX, Waiting,
};
use crate::order::{CancelError, Order, ShipError, Status};

/// Versions, counts, sequences and event numbers of this size and above are damaged: real ones never get so high. The
/// highest 64-bit number has no successor, so incrementing it would fail a transaction that also contains changes of
/// other projects.
const COUNTED_MAX: i64 = 1 << 62;

/// Writer tasks, and so concurrent write transactions, with PostgreSQL.
const WRITERS_OVER_NETWORK: usize = 3;

/// The store. Clients share it.
pub struct OrderStore {
    database: Database,
    writers: Vec<Writer>,
    store_id: String,
}

fn migrations() -> Migrations {
    chassis::migrations!["0001_schema.sql" or "postgres/0001_schema.sql"]
}

/// The newest schema version that this version of the service supports.
#[must_use]
pub fn newest_schema() -> i64 {
    migrations().newest()
}

/// Prepares a restored database for use: it gets a new id, so no earlier entity tag matches.
///
/// # Errors
/// If it is not a database of orders, if a service uses it, or if it does not answer.
pub async fn finish_restore(restored: &Location) -> anyhow::Result<()> {
    Database::may_be_taken(restored).await?;
    let database = Database::open(restored, &migrations()).await?;
    query("DELETE FROM installation").execute(&database.write).await?;
    database.close().await;
    Ok(())
}

impl OrderStore {
    /// Opens or creates the database, migrates its schema and starts the writers.
    ///
    /// # Errors
    /// If it cannot be opened, is damaged, or was written by a newer version.
    pub async fn open(location: &Location) -> anyhow::Result<Self> {
        let database = Database::open(location, &migrations()).await?;
        let fresh = chassis::random::bytes::<8>()?.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let store_id = database.first_query(async || store_id_of(&database, &fresh).await).await;
        let store_id = store_id.with_context(|| format!("reading {location:?}"))?;
        if database.kind() == Kind::Sqlite {
            outbox::count_on(&database.write).await.with_context(|| format!("reading {location:?}"))?;
        }
        let writers = match database.kind() {
            Kind::Sqlite => 1,
            Kind::Postgres => WRITERS_OVER_NETWORK,
        };
        let writers = (0..writers).map(|_| Writer::start(database.write.clone())).collect();
        Ok(Self { database, writers, store_id })
    }

    /// The writer of a project. All changes of a project use the same writer, so they never wait for each other's
    /// locks.
    fn writer_of(&self, project: &ProjectUid) -> Result<&Writer, StoreError> {
        let number = usize::try_from(crc32fast::hash(project.as_str().as_bytes())).unwrap_or_default();
        let writer = number.checked_rem(self.writers.len()).and_then(|index| self.writers.get(index));
        writer.ok_or_else(no_writer)
    }

    async fn write<T>(
        &self,
        project: &ProjectUid,
        job: impl FnOnce(ProjectUid, oneshot::Sender<T>) -> Job,
    ) -> Result<T, StoreError> {
        Self::write_by(self.writer_of(project)?, |reply| job(project.clone(), reply)).await
    }

    async fn write_by<T>(writer: &Writer, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        writer.submit(job(reply))?;
        answer_in_time(answer).await?.map_err(|_| stopped())
    }
}

/// The answer of a writer, or its end without one.
async fn answer_in_time<T>(answer: oneshot::Receiver<T>) -> Result<Result<T, RecvError>, StoreError> {
    let late = |_| StoreError::new(FaultKind::Busy, "the writer did not answer in time");
    tokio::time::timeout(WAIT_MAX, answer).await.map_err(late)
}

fn stopped() -> StoreError {
    StoreError::new(FaultKind::Other, "the writer stopped before it answered")
}

fn no_writer() -> StoreError {
    StoreError::new(FaultKind::Other, "the store has no writer")
}

/// The id of the store; `fresh` at the first start.
async fn store_id_of(database: &Database, fresh: &str) -> Result<String, sqlx::Error> {
    query("INSERT INTO installation (one, mark) VALUES (1, $1) ON CONFLICT (one) DO NOTHING")
        .bind(fresh)
        .execute(&database.write)
        .await?;
    query_scalar("SELECT mark FROM installation WHERE one = 1").fetch_one(&database.write).await
}

/// Runs a read with a deadline.
async fn within<T>(read: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
    match tokio::time::timeout(WAIT_MAX, read).await {
        Ok(result) => Ok(result?),
        Err(_) => Err(StoreError::new(FaultKind::Busy, "the database did not answer in time")),
    }
}

impl OrderStore {
    /// Identifies this database; no other one has the same id.
    pub fn store_id(&self) -> &str {
        &self.store_id
    }

    /// Version and number of the project's orders, consistent with each other.
    pub async fn edition(&self, project: &ProjectUid) -> Result<Edition, StoreError> {
        let row = within(
            query_as("SELECT version, orders FROM stores WHERE project = $1")
                .bind(project.as_str())
                .fetch_optional(&self.database.read),
        )
        .await?;
        Ok(row.map_or_else(Edition::default, |(version, orders)| Edition { version, orders }))
    }

    /// The next `limit` orders with ids above `after`, in id order. Holds no lock or connection afterwards.
    pub async fn batch(&self, project: &ProjectUid, after: Option<i64>, limit: u32) -> Result<Vec<Order>, StoreError> {
        // Two statements in place of an OR: each is a plain range scan of the primary key.
        let first = "SELECT id, pet_id, quantity, ship_date_micros, complete, status, checksum FROM orders \
                     WHERE project = $1 ORDER BY id LIMIT $2";
        let next = "SELECT id, pet_id, quantity, ship_date_micros, complete, status, checksum FROM orders \
                    WHERE project = $1 AND id > $3 ORDER BY id LIMIT $2";
        let query = query_as(if after.is_some() { next } else { first }).bind(project.as_str()).bind(i64::from(limit));
        let query = match after {
            Some(after) => query.bind(after),
            None => query,
        };
        let rows = within(query.fetch_all(&self.database.read)).await?;
        rows.into_iter().map(|columns| row::read(project, columns)).collect()
    }

    /// One page of orders.
    pub async fn page(&self, project: &ProjectUid, query: &PageQuery) -> Result<Vec<Order>, StoreError> {
        page::read(&self.database.read, project, query).await
    }

    /// One order.
    pub async fn find(&self, project: &ProjectUid, id: i64) -> Result<Option<Order>, StoreError> {
        let found =
            within(query_as(row::SELECT_ONE).bind(project.as_str()).bind(id).fetch_optional(&self.database.read));
        found.await?.map(|columns| row::read(project, columns)).transpose()
    }

    /// The changes of an order, oldest first; `None` for an unknown order.
    pub async fn events(&self, project: &ProjectUid, id: i64) -> Result<Option<Vec<Event>>, StoreError> {
        if self.find(project, id).await?.is_none() {
            return Ok(None);
        }
        let text = "SELECT event, at_millis FROM order_events WHERE project = $1 AND order_id = $2 ORDER BY sequence";
        let rows = within(query_as(text).bind(project.as_str()).bind(id).fetch_all(&self.database.read)).await?;
        let events = rows.into_iter().map(|(word, at): (String, i64)| {
            let kind = word.parse().map_err(|_| StoreError::corrupt(format!("an event of order {id} is {word:?}")))?;
            Ok(Event { kind, at: UnixMillis(at) })
        });
        events.collect::<Result<_, StoreError>>().map(Some)
    }

    /// Whether any order of the project is for this pet.
    pub async fn knows_pet(&self, project: &ProjectUid, pet_id: i64) -> Result<bool, StoreError> {
        let text = "SELECT id FROM orders WHERE project = $1 AND pet_id = $2 LIMIT 1";
        let found =
            within(query_scalar::<i64>(text).bind(project.as_str()).bind(pet_id).fetch_optional(&self.database.read));
        Ok(found.await?.is_some())
    }

    /// The number of orders in each state.
    pub async fn summary(&self, project: &ProjectUid) -> Result<Summary, StoreError> {
        let text = "SELECT status, COUNT(*) FROM orders WHERE project = $1 GROUP BY status";
        let rows: Vec<(String, i64)> =
            within(query_as(text).bind(project.as_str()).fetch_all(&self.database.read)).await?;
        let mut summary = Summary::default();
        for (word, count) in rows {
            match row::status(&word)? {
                Status::Pending => summary.pending = count,
                Status::Shipped => summary.shipped = count,
                Status::Cancelled => summary.cancelled = count,
            }
        }
        Ok(summary)
    }

    /// Cancels a pending order. After `Ok` the cancellation is on disk.
    pub async fn cancel(
        &self,
        project: &ProjectUid,
        id: i64,
        at: UnixMillis,
    ) -> Result<Order, ChangeError<CancelError>> {
        self.write(project, |project, reply| Job::Cancel { project, id, at, reply }).await?
    }

    /// Ships a pending order, durably.
    pub async fn ship(&self, project: &ProjectUid, id: i64, at: UnixMillis) -> Result<Order, ChangeError<ShipError>> {
        self.write(project, |project, reply| Job::Ship { project, id, at, reply }).await?
    }

    /// Creates a pending order with the next free id, durably; once per idempotency key.
    pub async fn create(
        &self,
        project: &ProjectUid,
        order: NewOrder,
        idempotency: Option<Idempotency>,
        at: UnixMillis,
    ) -> Result<Created, CreateError> {
        self.write(project, |project, reply| Job::Create { project, order, idempotency, at, reply }).await?
    }

    /// Adds all orders, durably, or none. After an error none is added later, unless a commit took longer than
    /// [`WAIT_MAX`] or its result is unknown.
    pub async fn import(&self, project: &ProjectUid, orders: Vec<Order>) -> Result<u64, ImportError> {
        self.import_within(IMPORT_WAIT_MAX, project, orders).await
    }

    async fn import_within(
        &self,
        wait: Duration,
        project: &ProjectUid,
        orders: Vec<Order>,
    ) -> Result<u64, ImportError> {
        let (permit, (reply, mut answer)) = (CommitPermit::default(), oneshot::channel());
        let job = Job::Import { project: project.clone(), orders, permit: permit.clone(), reply };
        self.writer_of(project)?.submit(job)?;
        let answered = match tokio::time::timeout(wait, &mut answer).await {
            Ok(answered) => answered,
            Err(_) if permit.take() => {
                return Err(StoreError::new(FaultKind::Busy, "the import was not written in time").into());
            }
            // The writer commits it.
            Err(_) => answer_in_time(answer).await?,
        };
        answered.map_err(|_| stopped())?
    }

    /// Erases all data of the project, durably, and refuses later changes to it. Succeeds for an unknown or erased
    /// project. Changes of other projects can run in between.
    pub async fn erase(&self, project: &ProjectUid, at: UnixMillis) -> Result<(), StoreError> {
        while self.write(project, |project, reply| Job::Erase { project, at, reply }).await?? {}
        Ok(self.database.wipe_deleted().await?)
    }

    /// The database, for metrics.
    pub fn database(&self) -> Database {
        self.database.clone()
    }

    /// The oldest undelivered events, in the order of their numbers. The transaction of each change writes one event;
    /// an import writes none.
    pub async fn undelivered(&self, limit: u32) -> Result<Waiting, StoreError> {
        outbox::read(&self.database.read, limit).await
    }

    /// Deletes the delivered events, and the oldest undelivered ones above `keep`. Returns the number of the latter.
    pub async fn forget(&self, delivered: Vec<i64>, keep: u32) -> Result<u64, StoreError> {
        // The outbox is not divided by project, so any writer can do this.
        let writer = self.writers.first().ok_or_else(no_writer)?;
        Self::write_by(writer, |reply| Job::Forget { delivered, keep, reply }).await?
    }

    /// Completes the changes in progress and closes the files.
    pub async fn close(&self) {
        for writer in &self.writers {
            writer.stop().await;
        }
        self.database.close().await;
    }
}
