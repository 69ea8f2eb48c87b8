//! One interface to two databases: embedded SQLite, and PostgreSQL shared by several replicas.
//!
//! Both support `$1`, `ON CONFLICT` and `RETURNING`, so a statement is written once; [`query`], [`query_as`] and
//! [`query_scalar`] run it on either. If they differ, the caller checks the [`Kind`].
//!
//! If the database is unavailable, every call fails within a stated time: [`WAIT_MAX`] for a connection or a lock,
//! [`STATEMENT_WAIT_MAX`] for a statement. A connection that timed out, or whose caller was cancelled during a
//! statement, is closed and never reused. The next one is opened on demand, so recovery is automatic.

mod connection;
mod found;
mod location;
mod pool;
mod query;
#[cfg(test)]
mod tests;
mod unreadable;
mod watch;

pub use crate::postgres::{InvalidUrl, PostgresSettings};
pub use connection::{Begin, Connection};
pub use found::{Cell, Found, Readable, whole};
pub use location::{Location, StoreKind, read_location};
pub use pool::{Kind, Migrations, Pool, PoolUse};
pub use query::{Builder, Done, On, Query, QueryAs, Record, Value, Values, query, query_as, query_scalar};
pub use unreadable::{BadColumn, RowKey, UNREADABLE_MAX, UnreadableRows};
pub use watch::{StoreMetrics, watch};

pub use crate::postgres::STATEMENT_WAIT_MAX;
pub use crate::sqlite::WAIT_MAX;

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;

/// Whether the database had no space left for a write.
pub fn is_full(error: &sqlx::Error) -> bool {
    /// `disk_full` of PostgreSQL; its codes have five characters.
    const POSTGRES: &str = "53100";
    /// `SQLITE_FULL`, the low byte of an extended code.
    const SQLITE: u32 = 13;
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    let is_sqlite = |code: &str| code.len() < 5 && code.parse::<u32>().is_ok_and(|code| code & 0xff == SQLITE);
    code.is_some_and(|code| code == POSTGRES || is_sqlite(&code))
}

/// The operator's next step if the disk of the database is full.
pub const FREE_SPACE: &str = "free space on the disk of the database";

/// The operator's next step if the database does not answer.
const REPAIR: &str = "start the database server, or repair the network to it; SQLite: check the file and its disk";

/// The operator's next step after an error.
pub fn remedy(error: &sqlx::Error) -> &'static str {
    if is_full(error) { FREE_SPACE } else { REPAIR }
}

/// One database.
#[derive(Clone, Debug)]
pub struct Database {
    /// For writing. SQLite has one writing connection; PostgreSQL shares its pool between reading and writing.
    pub write: Pool,
    /// For reading.
    pub read: Pool,
}

impl Database {
    /// Opens (or creates) the database and migrates its schema. Waits for a PostgreSQL server at most
    /// [`crate::postgres::START_WAIT_MAX`].
    ///
    /// # Errors
    /// If it cannot be opened, is not a database, does not keep acknowledged changes, or was made by a newer version,
    /// an unreleased one, or another program.
    pub async fn open(location: &Location, migrations: &Migrations) -> anyhow::Result<Self> {
        match location {
            Location::Sqlite(path) => Self::open_sqlite(path, migrations).await,
            Location::Postgres(settings) => {
                crate::postgres::migrate(settings, &migrations.postgres).await?;
                let pool = Pool::server(crate::postgres::open(settings));
                Ok(Self { write: pool.clone(), read: pool })
            }
        }
    }

    /// Checks that a service made this database before, for a start that must not make a new one: a wrong path, a disk
    /// that is not mounted and another server would otherwise look like a platform without data. Waits for a server
    /// like [`Database::open`].
    ///
    /// # Errors
    /// If it is missing or empty, or the server does not answer.
    pub async fn must_exist(place: &Location) -> anyhow::Result<()> {
        let exists = match place {
            Location::Sqlite(path) => std::fs::metadata(path).is_ok_and(|file| file.len() > 0),
            Location::Postgres(settings) => {
                let pool = Pool::server(crate::postgres::open(settings));
                let found = crate::postgres::wait_for(async || {
                    query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL").fetch_one(&pool).await
                });
                let found = found.await.with_context(|| format!("{place:?}"));
                pool.close().await;
                found?
            }
        };
        anyhow::ensure!(
            exists,
            "there is no database in {place:?}, and create_database is false: correct the path or the server, or restore a \
             backup; to begin with an empty database, start once with create_database = true (with \
             ./up, choose another --data-dir)"
        );
        Ok(())
    }

    async fn open_sqlite(path: &Path, migrations: &Migrations) -> anyhow::Result<Self> {
        let sqlite = crate::sqlite::Sqlite::open(path).await?;
        let migrated = sqlite.migrate(&migrations.sqlite).await;
        migrated.with_context(|| format!("the database {}", path.display()))?;
        let unreadable = Arc::default();
        let pool = |pool| Pool::Sqlite(pool, Arc::clone(&unreadable));
        Ok(Self { write: pool(sqlite.write), read: pool(sqlite.read) })
    }

    /// Read-only connections to an existing database; its schema may have any version and is not changed.
    pub fn as_it_is(location: &Location) -> Pool {
        match location {
            Location::Sqlite(path) => Pool::Sqlite(crate::sqlite::reader(path), Arc::default()),
            Location::Postgres(settings) => Pool::server(crate::postgres::open(settings)),
        }
    }

    /// Checks that this database has the schema of a service, and that no service uses it (PostgreSQL).
    ///
    /// # Errors
    /// If the schema is missing, a service has a connection, or the database does not answer.
    pub async fn may_be_taken(location: &Location) -> anyhow::Result<()> {
        let pool = Self::as_it_is(location);
        // On one connection: a second one of the pool would be counted as a service's.
        let mut connection = pool.acquire().await.with_context(|| format!("{location:?}"))?;
        let ours = query_scalar::<i64>("SELECT MAX(version) FROM _sqlx_migrations").fetch_one(&mut connection).await;
        ours.with_context(|| format!("{location:?} has no schema of ours: restore the backup into it first"))?;
        if pool.kind() == Kind::Postgres {
            let others: i64 = query_scalar(
                "SELECT COUNT(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name = 'tollhouse' AND pid <> pg_backend_pid()",
            )
            .fetch_one(&mut connection)
            .await?;
            anyhow::ensure!(others == 0, "a service still uses {location:?}; stop it first");
        }
        drop(connection);
        pool.close().await;
        Ok(())
    }

    /// Runs a process's first query, perhaps several times. If a PostgreSQL server becomes unavailable again, waits for
    /// it as for one that is not reachable yet: a new server often starts twice, and names of containers change during
    /// the start.
    ///
    /// # Errors
    /// The last error: one that does not pass, or any after [`crate::postgres::START_WAIT_MAX`].
    pub async fn first_query<T>(&self, query: impl AsyncFn() -> Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        match self.kind() {
            Kind::Sqlite => query().await,
            Kind::Postgres => crate::postgres::wait_for(query).await,
        }
    }

    /// Which database it is.
    pub fn kind(&self) -> Kind {
        self.write.kind()
    }

    /// Empties SQLite's write-ahead log, where deleted rows could still be read; the file has zeros in their place. In
    /// PostgreSQL vacuuming does both.
    ///
    /// # Errors
    /// If a reader takes longer than [`crate::sqlite::WAIT_MAX`], or the database does not answer: try again later.
    pub async fn wipe_deleted(&self) -> Result<(), sqlx::Error> {
        let Some(pool) = self.write.sqlite() else { return Ok(()) };
        let is_busy: bool = sqlx::query_scalar("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(pool).await?;
        let busy = || std::io::Error::new(std::io::ErrorKind::ResourceBusy, "the write-ahead log is being read");
        if is_busy { Err(sqlx::Error::Io(busy())) } else { Ok(()) }
    }

    /// Finishes running statements and closes all connections.
    pub async fn close(&self) {
        self.read.close().await;
        self.write.close().await;
    }
}
