//! The embedded database: SQLite with a write-ahead log, one writer, several readers.
//!
//! "Acknowledged means durable": `synchronous = FULL` makes a commit wait for the disk. SQLite has one writer; a pool
//! of one connection makes writers queue here, with a deadline, instead of failing with `SQLITE_BUSY`.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};

/// Connections for concurrent reads.
pub const READERS_MAX: u32 = 8;

/// How long a request may wait for a connection or for another process's lock.
pub const WAIT_MAX: Duration = Duration::from_secs(2);

/// One database file.
#[derive(Clone, Debug)]
pub struct Sqlite {
    /// The single writing connection.
    pub write: SqlitePool,
    /// Connections for reading; readers and the writer never block each other.
    pub read: SqlitePool,
}

impl Sqlite {
    /// Opens (or creates) the file and its directory.
    ///
    /// # Errors
    /// If the file cannot be opened or is not a database.
    pub async fn open(path: &Path) -> anyhow::Result<Self> {
        let place = || format!("opening the database {}", path.display());
        crate::backup::is_whole(path)?;
        if let Some(directory) = path.parent() {
            crate::durable::create_directories(directory).with_context(place)?;
        }
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(WAIT_MAX)
            .foreign_keys(true)
            // Deleted data is overwritten in the file.
            .pragma("secure_delete", "ON");
        let write = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(WAIT_MAX)
            .connect_with(options)
            .await
            .with_context(place)?;
        Ok(Self { write, read: reader(path) })
    }

    /// Migrates the schema.
    ///
    /// # Errors
    /// If a migration fails, or the file was made by a newer version, an unreleased one, or another program.
    pub async fn migrate(&self, migrator: &Migrator) -> anyhow::Result<()> {
        let mut connection = self.write.acquire().await?;
        let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
        let tables = sqlx::query_scalar(tables).fetch_all(&mut *connection).await.context("reading the schema")?;
        crate::origin::must_be_ours(&mut *connection, tables, migrator).await?;
        migrator.run(&mut *connection).await.context("bringing the database schema up to date")
    }

    /// Finishes running statements and closes the file.
    pub async fn close(&self) {
        self.read.close().await;
        self.write.close().await;
    }
}

/// Read-only connections. They are opened on demand, and create no file.
pub(crate) fn reader(path: &Path) -> SqlitePool {
    let options = SqliteConnectOptions::new().filename(path).read_only(true).busy_timeout(WAIT_MAX);
    SqlitePoolOptions::new().max_connections(READERS_MAX).acquire_timeout(WAIT_MAX).connect_lazy_with(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_connection_that_writes_waits_for_the_disk_at_every_commit() {
        let directory = tempfile::tempdir().unwrap();
        let sqlite = Sqlite::open(&directory.path().join("x.db")).await.unwrap();
        let setting = async |pragma: &'static str| -> String {
            let answer = sqlx::query_scalar::<_, String>(pragma).fetch_one(&sqlite.write).await;
            answer.unwrap_or_else(|error| error.to_string())
        };
        // 2 is FULL: with a write-ahead log, 1 (NORMAL) would wait only now and then.
        assert_eq!(setting("SELECT CAST(synchronous AS TEXT) FROM pragma_synchronous").await, "2");
        assert_eq!(setting("SELECT journal_mode FROM pragma_journal_mode").await, "wal");
        assert_eq!(setting("SELECT CAST(foreign_keys AS TEXT) FROM pragma_foreign_keys").await, "1");
        assert_eq!(setting("SELECT CAST(secure_delete AS TEXT) FROM pragma_secure_delete").await, "1");
    }
}
