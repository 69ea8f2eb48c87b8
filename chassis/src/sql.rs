//! One way to speak to two databases: SQLite embedded, PostgreSQL where several replicas share what must last.
//!
//! Both understand `$1`, `ON CONFLICT` and `RETURNING`, so a statement is written once; [`query`], [`query_as`] and
//! [`query_scalar`] run it on whatever the connection is. Where the two differ a caller asks for the [`Kind`].
//!
//! When the database is gone, everything here fails within a stated time: [`WAIT_MAX`] for a connection or a lock,
//! [`STATEMENT_WAIT_MAX`] for a statement. A connection that missed its time, or whose caller left in the middle of a
//! statement, is closed and never used again; the next one is opened when it is needed, so recovery needs nobody.

mod connection;
mod found;
mod place;
mod pool;
mod query;
#[cfg(test)]
mod tests;
mod unreadable;
mod watch;

pub use crate::postgres::{InvalidUrl, PostgresSettings};
pub use connection::{Begin, Connection};
pub use found::{Cell, Found, Readable, whole};
pub use place::{Place, StoreKind, read_place};
pub use pool::{Kind, Migrations, Pool, PoolUse};
pub use query::{Builder, Done, On, Query, QueryAs, Record, Value, query, query_as, query_scalar};
pub use unreadable::{BadColumn, RowPlace, UNREADABLE_MAX, UnreadableRows};
pub use watch::{StoreMetrics, watch};

pub use crate::postgres::STATEMENT_WAIT_MAX;
pub use crate::sqlite::WAIT_MAX;

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;

/// Whether the database had no space left for what it was to store.
pub fn is_full(error: &sqlx::Error) -> bool {
    /// `disk_full` of PostgreSQL, whose codes have five characters.
    const POSTGRES: &str = "53100";
    /// `SQLITE_FULL`, the low byte of an extended code.
    const SQLITE: u32 = 13;
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    let is_sqlite = |code: &str| code.len() < 5 && code.parse::<u32>().is_ok_and(|code| code & 0xff == SQLITE);
    code.is_some_and(|code| code == POSTGRES || is_sqlite(&code))
}

/// One database.
#[derive(Clone, Debug)]
pub struct Database {
    /// For changes. SQLite has one writing connection; PostgreSQL shares its pool between reading and writing.
    pub write: Pool,
    /// For reading.
    pub read: Pool,
}

impl Database {
    /// Opens (or makes) the database and brings its schema up to date. A PostgreSQL server that is not there yet is
    /// waited for, [`crate::postgres::START_WAIT_MAX`] at most.
    ///
    /// # Errors
    /// When it cannot be opened, is no database, does not keep what it acknowledges, or was made by a newer version, by one
    /// that was never released, or by another program.
    pub async fn open(place: &Place, migrations: &Migrations) -> anyhow::Result<Self> {
        match place {
            Place::Sqlite(path) => Self::open_sqlite(path, migrations).await,
            Place::Postgres(settings) => {
                crate::postgres::migrate(settings, &migrations.postgres).await?;
                let pool = Pool::server(crate::postgres::open(settings));
                Ok(Self { write: pool.clone(), read: pool })
            }
        }
    }

    async fn open_sqlite(path: &Path, migrations: &Migrations) -> anyhow::Result<Self> {
        let sqlite = crate::sqlite::Sqlite::open(path).await?;
        let migrated = sqlite.migrate(&migrations.sqlite).await;
        migrated.with_context(|| format!("the database {}", path.display()))?;
        let unreadable = Arc::default();
        let pool = |pool| Pool::Sqlite(pool, Arc::clone(&unreadable));
        Ok(Self { write: pool(sqlite.write), read: pool(sqlite.read) })
    }

    /// Connections that only read, to a database that is there; its schema may be of any version, and stays.
    pub fn as_it_is(place: &Place) -> Pool {
        match place {
            Place::Sqlite(path) => Pool::Sqlite(crate::sqlite::reader(path), Arc::default()),
            Place::Postgres(settings) => Pool::server(crate::postgres::open(settings)),
        }
    }

    /// Makes sure that a service has made this database, and that none uses it. (A file is taken by replacing it.)
    ///
    /// # Errors
    /// When it is otherwise, or the database does not answer.
    pub async fn may_be_taken(place: &Place) -> anyhow::Result<()> {
        let pool = Self::as_it_is(place);
        // On one connection: a second one of the pool would be counted as a service's.
        let mut connection = pool.acquire().await.with_context(|| format!("{place:?}"))?;
        let ours = query_scalar::<i64>("SELECT MAX(version) FROM _sqlx_migrations").fetch_one(&mut connection).await;
        ours.with_context(|| format!("{place:?} has no schema of ours: restore the backup into it first"))?;
        if pool.kind() == Kind::Postgres {
            let others: i64 = query_scalar(
                "SELECT COUNT(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name = 'tollhouse' AND pid <> pg_backend_pid()",
            )
            .fetch_one(&mut connection)
            .await?;
            anyhow::ensure!(others == 0, "a service still uses {place:?}; stop it first");
        }
        drop(connection);
        pool.close().await;
        Ok(())
    }

    /// What a process asks first of all, perhaps several times. A PostgreSQL server that is gone again is waited for like
    /// one that is not there yet: the first start of one is often two, and names of containers come and go meanwhile.
    ///
    /// # Errors
    /// What was answered last: when it is nothing that passes, or after [`crate::postgres::START_WAIT_MAX`].
    pub async fn first<T>(&self, ask: impl AsyncFn() -> Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        match self.kind() {
            Kind::Sqlite => ask().await,
            Kind::Postgres => crate::postgres::wait_for(ask).await,
        }
    }

    /// Which database it is.
    pub fn kind(&self) -> Kind {
        self.write.kind()
    }

    /// Empties SQLite's write-ahead log, where deleted rows can still be read; the file has zeros in their place. In PostgreSQL
    /// vacuuming does both.
    ///
    /// # Errors
    /// When somebody reads for longer than [`crate::sqlite::WAIT_MAX`], or the database does not answer: try again later.
    pub async fn wipe_deleted(&self) -> Result<(), sqlx::Error> {
        let Some(pool) = self.write.sqlite() else { return Ok(()) };
        let is_busy: bool = sqlx::query_scalar("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(pool).await?;
        let busy = || std::io::Error::new(std::io::ErrorKind::ResourceBusy, "the write-ahead log is being read");
        if is_busy { Err(sqlx::Error::Io(busy())) } else { Ok(()) }
    }

    /// Finishes what is in progress and lets go.
    pub async fn close(&self) {
        self.read.close().await;
        self.write.close().await;
    }
}
