//! Connections of either database.

use sqlx::migrate::Migrator;
use sqlx::{PgPool, SqlitePool};

use super::{Begin, Connection};

/// Which database it is.
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

/// A bounded number of connections; whoever asks for one more waits, [`super::WAIT_MAX`] at most.
#[derive(Clone, Debug)]
pub enum Pool {
    /// To a file.
    Sqlite(SqlitePool),
    /// To a server.
    Postgres(PgPool),
}

/// How many connections there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// At work.
    pub busy: u32,
    /// Open and idle.
    pub idle: u32,
    /// How many there may be.
    pub max: u32,
}

impl Pool {
    /// Which database it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Sqlite(_) => Kind::Sqlite,
            Self::Postgres(_) => Kind::Postgres,
        }
    }

    /// A connection.
    ///
    /// # Errors
    /// When none is free in time, or the database is not there.
    pub async fn acquire(&self) -> Result<Connection, sqlx::Error> {
        Ok(match self {
            Self::Sqlite(pool) => Connection::of_sqlite(pool.acquire().await?),
            Self::Postgres(pool) => Connection::of_postgres(pool.acquire().await?),
        })
    }

    /// A connection with a transaction on it.
    ///
    /// # Errors
    /// As [`Pool::acquire`].
    pub async fn begin(&self, begin: Begin) -> Result<Connection, sqlx::Error> {
        let mut connection = self.acquire().await?;
        connection.begin(begin).await?;
        Ok(connection)
    }

    /// How many connections there are.
    pub fn usage(&self) -> PoolUse {
        let (size, idle, max) = match self {
            Self::Sqlite(pool) => (pool.size(), pool.num_idle(), pool.options().get_max_connections()),
            Self::Postgres(pool) => (pool.size(), pool.num_idle(), pool.options().get_max_connections()),
        };
        let idle = u32::try_from(idle).unwrap_or(u32::MAX).min(size);
        PoolUse { busy: size - idle, idle, max }
    }

    /// The pool of the embedded database, if it is that.
    pub fn sqlite(&self) -> Option<&SqlitePool> {
        match self {
            Self::Sqlite(pool) => Some(pool),
            Self::Postgres(_) => None,
        }
    }

    /// The pool of a server, if it is that.
    pub fn postgres(&self) -> Option<&PgPool> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(pool) => Some(pool),
        }
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}
