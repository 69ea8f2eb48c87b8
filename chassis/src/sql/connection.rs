//! A connection, with or without a transaction.
//!
//! An uncommitted transaction is rolled back when the connection is dropped. If the driver cannot know the state of the
//! database, the connection is closed instead of reused: after a statement that timed out or was cancelled, a failed
//! commit, or an error on which SQLite may have rolled back by itself.

use std::sync::Arc;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Executor as _, Postgres, Sqlite};
use tokio::runtime::Handle;

use super::{Kind, STATEMENT_WAIT_MAX, UnreadableRows, query};

/// How long a rollback may take before the connection is closed instead.
const UNDO_WAIT_MAX: Duration = Duration::from_secs(1);

/// The purpose of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// To write. SQLite's writer takes its lock at once, so that values read stay true until the commit; in PostgreSQL
    /// the caller locks the row that orders writers.
    Write,
    /// To read several things in one snapshot.
    Snapshot,
}

/// One connection of a pool.
#[derive(Debug)]
pub struct Connection {
    pub(super) pooled: PooledConnection,
    /// How long a statement may take.
    pub(super) limit: Duration,
    transaction: Transaction,
    /// A statement is running, or was cancelled.
    pub(super) busy: bool,
    broken: bool,
    unreadable: Arc<UnreadableRows>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transaction {
    None,
    Open,
    /// A statement failed, so it cannot be committed: PostgreSQL would report success and roll back, SQLite would keep
    /// what the other statements wrote.
    Failed,
}

#[derive(Debug)]
pub(super) enum PooledConnection {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PoolConnection<Postgres>),
    /// Taken while it is dropped.
    Gone,
}

impl PooledConnection {
    async fn run(&mut self, text: &'static str, limit: Duration) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(pooled) => in_time(limit, pooled.execute(text)).await.map(|_| ()),
            Self::Postgres(pooled) => in_time(limit, pooled.execute(text)).await.map(|_| ()),
            Self::Gone => Err(sqlx::Error::PoolClosed),
        }
    }

    fn close_on_drop(&mut self) {
        match self {
            Self::Sqlite(pooled) => pooled.close_on_drop(),
            Self::Postgres(pooled) => pooled.close_on_drop(),
            Self::Gone => {}
        }
    }
}

impl Connection {
    pub(super) fn of_sqlite(connection: PoolConnection<Sqlite>, unreadable: Arc<UnreadableRows>) -> Self {
        // SQLite has no network to wait for; its waits are the busy timeout and the caller's own deadline.
        Self::of(PooledConnection::Sqlite(connection), Duration::from_hours(1), unreadable)
    }

    pub(super) fn of_postgres(connection: PoolConnection<Postgres>, unreadable: Arc<UnreadableRows>) -> Self {
        Self::of(PooledConnection::Postgres(connection), STATEMENT_WAIT_MAX, unreadable)
    }

    fn of(pooled: PooledConnection, limit: Duration, unreadable: Arc<UnreadableRows>) -> Self {
        Self { pooled, limit, transaction: Transaction::None, busy: false, broken: false, unreadable }
    }

    /// The unreadable rows of the database.
    pub fn unreadable(&self) -> &Arc<UnreadableRows> {
        &self.unreadable
    }

    /// The kind of its database.
    pub fn kind(&self) -> Kind {
        match self.pooled {
            PooledConnection::Postgres(_) => Kind::Postgres,
            PooledConnection::Sqlite(_) | PooledConnection::Gone => Kind::Sqlite,
        }
    }

    pub(super) async fn begin(&mut self, begin: Begin) -> Result<(), sqlx::Error> {
        let text = match (self.kind(), begin) {
            (Kind::Sqlite, Begin::Write) => "BEGIN IMMEDIATE",
            (Kind::Sqlite, Begin::Snapshot) => "BEGIN",
            (Kind::Postgres, Begin::Write) => "BEGIN ISOLATION LEVEL READ COMMITTED",
            (Kind::Postgres, Begin::Snapshot) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        };
        // Before the statement: a caller that is cancelled during it leaves a connection whose driver still begins.
        self.transaction = Transaction::Open;
        let begun = self.run(text).await;
        // A lock that was not available leaves nothing behind; other failures might.
        self.broken |= begun.is_err();
        begun
    }

    /// Raises the statement timeout in this transaction: for a large import, or a streamed snapshot.
    pub async fn allow(&mut self, time: Duration) -> Result<(), sqlx::Error> {
        if self.kind() == Kind::Postgres {
            let millis = time.as_millis().to_string();
            query("SELECT set_config('statement_timeout', $1, TRUE)").bind(millis).execute(&mut *self).await?;
            self.limit = time + Duration::from_secs(1);
        }
        Ok(())
    }

    /// Whether a statement of the transaction failed, so that nothing of it can be committed.
    pub fn has_failed(&self) -> bool {
        self.transaction == Transaction::Failed
    }

    /// Commits. `Ok` means that everything is on disk; an error means that the result is unknown, or that nothing was
    /// written because [`Connection::has_failed`].
    pub async fn commit(mut self) -> Result<(), sqlx::Error> {
        if self.has_failed() {
            self.roll_back().await;
            return Err(sqlx::Error::Protocol("a statement of the transaction failed".to_owned()));
        }
        let committed = self.run("COMMIT").await;
        self.transaction = Transaction::None;
        self.broken |= committed.is_err();
        committed
    }

    /// Rolls back. If that fails, the connection is closed, which rolls back too.
    pub async fn roll_back(mut self) {
        let undone = self.run("ROLLBACK").await;
        self.transaction = Transaction::None;
        self.broken |= undone.is_err();
    }

    async fn run(&mut self, text: &'static str) -> Result<(), sqlx::Error> {
        self.busy = true;
        let result = self.pooled.run(text, self.limit).await;
        self.finish_statement(result.as_ref().err());
        result
    }

    /// Records the result of a statement.
    pub(super) fn finish_statement(&mut self, error: Option<&sqlx::Error>) {
        self.busy = false;
        let Some(error) = error else { return };
        let in_transaction = self.transaction != Transaction::None;
        if in_transaction && matches!(error, sqlx::Error::Database(_)) {
            self.transaction = Transaction::Failed;
        }
        self.broken |= match (&self.pooled, error) {
            (_, sqlx::Error::RowNotFound | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)) => false,
            // On a full disk or an I/O error SQLite may roll back by itself; the driver still counts a transaction.
            (PooledConnection::Sqlite(_), sqlx::Error::Database(error)) => {
                in_transaction
                    && !(error.is_unique_violation() || error.is_foreign_key_violation() || error.is_check_violation())
            }
            // A server that refuses writes is no longer the primary: another one may have its address.
            (PooledConnection::Postgres(_), sqlx::Error::Database(error)) => error.code().as_deref() == Some("25006"),
            _ => true,
        };
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.broken || (self.busy && self.kind() == Kind::Postgres) {
            self.pooled.close_on_drop();
        } else if self.transaction != Transaction::None {
            let mut pooled = std::mem::replace(&mut self.pooled, PooledConnection::Gone);
            let Ok(runtime) = Handle::try_current() else {
                pooled.close_on_drop();
                return;
            };
            runtime.spawn(async move {
                if pooled.run("ROLLBACK", UNDO_WAIT_MAX).await.is_err() {
                    pooled.close_on_drop();
                }
            });
        }
    }
}

/// The result of a statement, or a timeout.
pub(super) async fn in_time<T>(
    limit: Duration,
    statement: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    tokio::time::timeout(limit, statement).await.unwrap_or_else(|_| {
        let text = "the database did not answer in time";
        Err(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, text)))
    })
}
