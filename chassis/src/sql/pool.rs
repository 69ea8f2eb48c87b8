//! Connection pools of either database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{PgPool, SqlSafeStr, SqlitePool};

use super::{Begin, Connection, UnreadableRows};

/// How long to wait for a connection while the server is known to be unreachable.
const DOWN_WAIT_MAX: Duration = Duration::from_millis(100);

/// The kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Embedded: one file, one process, one writer.
    Sqlite,
    /// A server that several replicas share.
    Postgres,
}

/// The schema, once for each database.
#[derive(Debug)]
pub struct Migrations {
    /// For SQLite.
    pub sqlite: Migrator,
    /// For PostgreSQL.
    pub postgres: Migrator,
}

/// The migrations of a service, files of its folder `migrations`, compiled into the program: one text for both
/// databases, or `"0001_schema.sql" or "postgres/0001_schema.sql"` with another one for PostgreSQL.
///
/// Replaces `sqlx::migrate!`, which reads the folders in the compiler (see [`crate::record!`]); a test of each service
/// compares the names with the folders.
#[macro_export]
macro_rules! migrations {
    ($($file:literal $(or $postgres:literal)?),+ $(,)?) => {
        $crate::sql::Migrations::new(&[$((
            $file,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/", $file)),
            [
                $(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/", $postgres)),)?
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/", $file)),
            ][0],
        )),+])
    };
}

impl Migrations {
    /// From file names and their texts for SQLite and PostgreSQL: `0003_webhooks.sql` is version 3, "webhooks". See
    /// [`crate::migrations!`].
    #[must_use]
    pub fn new(files: &[(&'static str, &'static str, &'static str)]) -> Self {
        let read = |file: &'static str, text: &'static str| {
            let (version, title) = file.trim_end_matches(".sql").split_once('_').unwrap_or((file, ""));
            let title = title.replace('_', " ").into();
            Migration::new(version.parse().unwrap_or(0), title, MigrationType::Simple, text.into_sql_str(), false)
        };
        Self {
            sqlite: Migrator::with_migrations(files.iter().map(|(file, text, _)| read(file, text)).collect()),
            postgres: Migrator::with_migrations(files.iter().map(|(file, _, text)| read(file, text)).collect()),
        }
    }

    /// Whether the names match the files in this folder, and those with two texts also the files in `postgres` below
    /// it, for a test.
    ///
    /// # Errors
    /// If a folder cannot be read.
    pub fn are_all_of(&self, folder: &std::path::Path) -> std::io::Result<bool> {
        let all: Vec<_> = self.sqlite.iter().map(|migration| migration.version).collect();
        let both = self.sqlite.iter().zip(self.postgres.iter());
        let apart = both.filter(|(sqlite, postgres)| sqlite.checksum != postgres.checksum);
        let apart = apart.map(|(migration, _)| migration.version).collect();
        for (folder, known) in [(folder, all), (folder.join("postgres").as_path(), apart)] {
            let mut versions = Vec::new();
            for entry in std::fs::read_dir(folder)? {
                let name = entry?.file_name();
                let name = name.to_string_lossy();
                versions.extend(name.split_once('_').and_then(|(version, _)| version.parse::<i64>().ok()));
            }
            versions.sort_unstable();
            if versions != known {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The newest schema version of this program.
    #[must_use]
    pub fn newest(&self) -> i64 {
        self.sqlite.iter().map(|migration| migration.version).max().unwrap_or(0)
    }
}

/// A bounded number of connections; further callers wait, at most [`super::WAIT_MAX`].
#[derive(Clone, Debug)]
pub enum Pool {
    /// For a file.
    Sqlite(SqlitePool, Arc<UnreadableRows>),
    /// For a server, and whether it is known to be unreachable.
    Postgres(PgPool, Arc<AtomicBool>, Arc<UnreadableRows>),
}

/// The use of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// Connections in use.
    pub busy: u32,
    /// Connections open and idle.
    pub idle: u32,
    /// The maximum.
    pub max: u32,
}

impl Pool {
    /// The kind of database.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Sqlite(..) => Kind::Sqlite,
            Self::Postgres(..) => Kind::Postgres,
        }
    }

    /// Acquires a connection.
    ///
    /// # Errors
    /// If none is free in time, or the database is unavailable.
    pub async fn acquire(&self) -> Result<Connection, sqlx::Error> {
        if let Self::Postgres(_, down, _) = self {
            let is_down = || down.load(Ordering::Relaxed);
            let acquired = if is_down() {
                tokio::time::timeout(DOWN_WAIT_MAX, self.acquire_patiently()).await
            } else {
                Ok(self.acquire_patiently().await)
            };
            return match acquired {
                // The pool has the same error for too few connections and for an unreachable server.
                Ok(Err(sqlx::Error::PoolTimedOut)) | Err(_) if is_down() => {
                    let text = "the database server does not answer";
                    Err(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::NotConnected, text)))
                }
                Ok(acquired) => acquired,
                Err(_) => Err(sqlx::Error::PoolTimedOut),
            };
        }
        self.acquire_patiently().await
    }

    /// Like [`Pool::acquire`], but waits even while the server is known to be unreachable, to detect its return.
    pub(super) async fn acquire_patiently(&self) -> Result<Connection, sqlx::Error> {
        Ok(match self {
            Self::Sqlite(pool, rows) => Connection::of_sqlite(pool.acquire().await?, rows.clone()),
            Self::Postgres(pool, _, rows) => Connection::of_postgres(pool.acquire().await?, rows.clone()),
        })
    }

    /// For a server that is assumed to answer.
    pub(super) fn server(pool: PgPool) -> Self {
        Self::Postgres(pool, Arc::default(), Arc::default())
    }

    /// The unreadable rows of the database.
    pub fn unreadable(&self) -> &Arc<UnreadableRows> {
        let (Self::Sqlite(_, rows) | Self::Postgres(_, _, rows)) = self;
        rows
    }

    /// Records whether the database answers.
    pub(super) fn set_up(&self, up: bool) {
        if let Self::Postgres(_, down, _) = self {
            down.store(!up, Ordering::Relaxed);
        }
    }

    /// Acquires a connection with a transaction.
    pub async fn begin(&self, begin: Begin) -> Result<Connection, sqlx::Error> {
        let mut connection = self.acquire().await?;
        connection.begin(begin).await?;
        Ok(connection)
    }

    /// The use of the pool.
    pub fn usage(&self) -> PoolUse {
        let (size, idle, max) = match self {
            Self::Sqlite(pool, _) => (pool.size(), pool.num_idle(), pool.options().get_max_connections()),
            Self::Postgres(pool, ..) => (pool.size(), pool.num_idle(), pool.options().get_max_connections()),
        };
        let idle = u32::try_from(idle).unwrap_or(u32::MAX).min(size);
        PoolUse { busy: size - idle, idle, max }
    }

    /// The pool of the embedded database, if it is one.
    pub fn sqlite(&self) -> Option<&SqlitePool> {
        match self {
            Self::Sqlite(pool, _) => Some(pool),
            Self::Postgres(..) => None,
        }
    }

    /// The pool of a server, if it is one.
    pub fn postgres(&self) -> Option<&PgPool> {
        match self {
            Self::Sqlite(..) => None,
            Self::Postgres(pool, ..) => Some(pool),
        }
    }

    /// Finishes running statements and closes all connections.
    pub async fn close(&self) {
        match self {
            Self::Sqlite(pool, _) => pool.close().await,
            Self::Postgres(pool, ..) => pool.close().await,
        }
    }
}
