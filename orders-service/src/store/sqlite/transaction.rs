//! A write transaction that cannot leave its connection in doubt.
//!
//! On a full disk or an I/O error SQLite may roll back by itself, and a pool that counts transactions then believes
//! that one is still open: every later one would fail. So a connection whose transaction did not commit is closed and
//! never goes back to the pool; the next transaction opens a new one.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{Executor as _, Sqlite, SqliteConnection, SqlitePool};

use crate::store::StoreError;

/// An open write transaction; it ends with [`Transaction::commit`] or [`Transaction::abandon`].
pub(super) struct Transaction(PoolConnection<Sqlite>);

impl Transaction {
    /// Takes the write lock at once, so that what is read stays true until the commit.
    pub(super) async fn begin(pool: &SqlitePool) -> Result<Self, StoreError> {
        let mut connection = pool.acquire().await?;
        match connection.execute("BEGIN IMMEDIATE").await {
            Ok(_) => Ok(Self(connection)),
            Err(error) => {
                Self(connection).abandon().await;
                Err(error.into())
            }
        }
    }

    /// When this answers `Ok`, everything is on disk.
    pub(super) async fn commit(mut self) -> Result<(), StoreError> {
        match self.0.execute("COMMIT").await {
            Ok(_) => Ok(()),
            Err(error) => {
                self.abandon().await;
                Err(error.into())
            }
        }
    }

    /// Undoes everything by closing the connection.
    pub(super) async fn abandon(self) {
        if let Err(error) = self.0.close().await {
            tracing::debug!(%error, "a connection with an unfinished transaction did not close cleanly");
        }
    }
}

impl Deref for Transaction {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.0
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.0
    }
}
