//! A connection, with or without a transaction on it.
//!
//! What was begun and not committed is undone when the connection is dropped. Where the driver cannot know in which
//! state the database is, the connection is closed instead of used again: after a statement that took too long, one
//! that was dropped half-way, a commit that failed, or an error on which SQLite may have rolled back by itself.

use std::sync::Arc;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Executor as _, Postgres, Sqlite};
use tokio::runtime::Handle;

use super::{Kind, STATEMENT_WAIT_MAX, UnreadableRows, query};

/// How long undoing what was left open may take before its connection is closed instead.
const UNDO_WAIT_MAX: Duration = Duration::from_secs(1);

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// To write. SQLite's writer takes its lock at once, so that what is read stays true until the commit; in
    /// PostgreSQL the caller locks the row that orders writers.
    Write,
    /// To read several things as of one moment.
    Snapshot,
}

/// One connection out of a pool.
#[derive(Debug)]
pub struct Connection {
    pub(super) held: Held,
    /// How long a statement may take.
    pub(super) limit: Duration,
    transaction: Transaction,
    /// A statement is on its way, or was when its caller left.
    pub(super) busy: bool,
    broken: bool,
    unreadable: Arc<UnreadableRows>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transaction {
    None,
    Open,
    /// A statement of it failed. PostgreSQL answers the commit of such a one as if all were well.
    Failed,
}

#[derive(Debug)]
pub(super) enum Held {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PoolConnection<Postgres>),
    /// Handed on while it is dropped.
    Gone,
}

impl Held {
    async fn run(&mut self, text: &'static str, limit: Duration) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(held) => in_time(limit, held.execute(text)).await.map(|_| ()),
            Self::Postgres(held) => in_time(limit, held.execute(text)).await.map(|_| ()),
            Self::Gone => Err(sqlx::Error::PoolClosed),
        }
    }

    fn close_on_drop(&mut self) {
        match self {
            Self::Sqlite(held) => held.close_on_drop(),
            Self::Postgres(held) => held.close_on_drop(),
            Self::Gone => {}
        }
    }
}

impl Connection {
    pub(super) fn of_sqlite(connection: PoolConnection<Sqlite>, unreadable: Arc<UnreadableRows>) -> Self {
        // SQLite has no network to wait for; its waits are the busy timeout and the caller's own deadline.
        Self::of(Held::Sqlite(connection), Duration::from_hours(1), unreadable)
    }

    pub(super) fn of_postgres(connection: PoolConnection<Postgres>, unreadable: Arc<UnreadableRows>) -> Self {
        Self::of(Held::Postgres(connection), STATEMENT_WAIT_MAX, unreadable)
    }

    fn of(held: Held, limit: Duration, unreadable: Arc<UnreadableRows>) -> Self {
        Self { held, limit, transaction: Transaction::None, busy: false, broken: false, unreadable }
    }

    /// The rows of the database that could not be read.
    pub fn unreadable(&self) -> &Arc<UnreadableRows> {
        &self.unreadable
    }

    /// Which database it leads to.
    pub fn kind(&self) -> Kind {
        match self.held {
            Held::Postgres(_) => Kind::Postgres,
            Held::Sqlite(_) | Held::Gone => Kind::Sqlite,
        }
    }

    pub(super) async fn begin(&mut self, begin: Begin) -> Result<(), sqlx::Error> {
        let text = match (self.kind(), begin) {
            (Kind::Sqlite, Begin::Write) => "BEGIN IMMEDIATE",
            (Kind::Sqlite, Begin::Snapshot) => "BEGIN",
            (Kind::Postgres, Begin::Write) => "BEGIN ISOLATION LEVEL READ COMMITTED",
            (Kind::Postgres, Begin::Snapshot) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        };
        let begun = self.run(text).await;
        if begun.is_ok() {
            self.transaction = Transaction::Open;
        }
        // A lock that was not to be had leaves nothing behind; anything else might.
        self.broken |= begun.is_err();
        begun
    }

    /// Lets the statements of this transaction take longer than others: a large import, a snapshot that is streamed.
    pub async fn allow(&mut self, time: Duration) -> Result<(), sqlx::Error> {
        if self.kind() == Kind::Postgres {
            let millis = time.as_millis().to_string();
            query("SELECT set_config('statement_timeout', $1, TRUE)").bind(millis).execute(&mut *self).await?;
            self.limit = time + Duration::from_secs(1);
        }
        Ok(())
    }

    /// Commits. When this answers `Ok`, everything is on disk; when not, nobody knows, and nothing was acknowledged.
    pub async fn commit(mut self) -> Result<(), sqlx::Error> {
        if self.transaction == Transaction::Failed && self.kind() == Kind::Postgres {
            self.roll_back().await;
            return Err(sqlx::Error::Protocol("a statement of the transaction had failed".to_owned()));
        }
        let committed = self.run("COMMIT").await;
        self.transaction = Transaction::None;
        self.broken |= committed.is_err();
        committed
    }

    /// Undoes the transaction. A connection on which that fails is closed, which undoes it as well.
    pub async fn roll_back(mut self) {
        let undone = self.run("ROLLBACK").await;
        self.transaction = Transaction::None;
        self.broken |= undone.is_err();
    }

    async fn run(&mut self, text: &'static str) -> Result<(), sqlx::Error> {
        self.busy = true;
        let result = self.held.run(text, self.limit).await;
        self.settle(result.as_ref().err());
        result
    }

    /// Notes how a statement ended.
    pub(super) fn settle(&mut self, error: Option<&sqlx::Error>) {
        self.busy = false;
        let Some(error) = error else { return };
        let in_transaction = self.transaction != Transaction::None;
        if in_transaction && matches!(error, sqlx::Error::Database(_)) {
            self.transaction = Transaction::Failed;
        }
        self.broken |= match (&self.held, error) {
            (_, sqlx::Error::RowNotFound | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)) => false,
            // On a full disk or an I/O error SQLite may roll back by itself; the driver goes on counting a transaction.
            (Held::Sqlite(_), sqlx::Error::Database(error)) => {
                in_transaction
                    && !(error.is_unique_violation() || error.is_foreign_key_violation() || error.is_check_violation())
            }
            // A server that takes no writes is not the primary any more: another one may stand at its address.
            (Held::Postgres(_), sqlx::Error::Database(error)) => error.code().as_deref() == Some("25006"),
            _ => true,
        };
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.broken || (self.busy && self.kind() == Kind::Postgres) {
            self.held.close_on_drop();
        } else if self.transaction != Transaction::None {
            let mut held = std::mem::replace(&mut self.held, Held::Gone);
            let Ok(runtime) = Handle::try_current() else {
                held.close_on_drop();
                return;
            };
            runtime.spawn(async move {
                if held.run("ROLLBACK", UNDO_WAIT_MAX).await.is_err() {
                    held.close_on_drop();
                }
            });
        }
    }
}

/// What a statement brings, or that it took too long.
pub(super) async fn in_time<T>(
    limit: Duration,
    statement: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    tokio::time::timeout(limit, statement).await.unwrap_or_else(|_| {
        let text = "the database did not answer in time";
        Err(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, text)))
    })
}
