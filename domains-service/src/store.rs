//! Storage: one relational database, and the change log in it.
//!
//! Every change for the edge is a row of `changes` with the next revision, written in the transaction that makes the
//! change; `entities` holds the result, so a snapshot is one consistent read. The first statement of every writing
//! transaction takes the row of `revision_counter`: writers queue there, so revisions have no gaps and appear in the
//! order of commits.
//!
//! The database is embedded SQLite, or PostgreSQL for several replicas of this service, with the same statements for
//! both. A replica keeps no state that another needs; notifications pass through the database (`peers`).
//!
//! When the database is gone, reads and writes fail with [`StoreError`] after a bounded wait and the API answers 503;
//! followers of the stream keep their state.

pub(crate) mod acme;
pub(crate) mod admitted;
pub(crate) mod bans;
pub(crate) mod comparison;
pub(crate) mod credentials;
pub(crate) mod domains;
pub(crate) mod events;
pub(crate) mod gateways;
mod kept;
pub(crate) mod keys;
pub(crate) mod leased;
pub(crate) mod log;
pub(crate) mod notices;
pub(crate) mod numbers;
pub(crate) mod overview;
pub(crate) mod processes;
pub(crate) mod projects;
pub(crate) mod queue;
pub(crate) mod revocations;
pub(crate) mod rows;
pub(crate) mod sealed;
pub(crate) mod sessions;
#[cfg(test)]
mod tests;
pub(crate) mod usage;
pub(crate) mod webhooks;
pub(crate) mod withdrawals;
pub(crate) mod write;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Context as _;
use chassis::clock::Clock;
use chassis::sql::{Begin, Connection, Database, Found, Location, Migrations, Pool, Query, query, query_as};
use contract::feed::Revision;
use contract::time::UnixMillis;
use parking_lot::Mutex;
use tokio::sync::watch;

use self::admitted::Admitted;
use self::leased::UnfinishedLease;
use self::revocations::Revocations;
pub(crate) use write::Write;

/// A statement that reads whole rows of projects' data, each with its project's name.
macro_rules! with_project {
    ($rest:literal) => {
        concat!("SELECT *, (SELECT name FROM projects WHERE id = project) AS project_name FROM ", $rest)
    };
}

/// The same for one page of a project's rows, oldest first, for [`Store::page`]. A time that is not a number sorts
/// first.
macro_rules! page_of {
    ($table:literal) => {
        concat!(
            "SELECT *, (SELECT name FROM projects WHERE id = project) AS project_name FROM ",
            $table,
            " WHERE project = $1 AND (CAST(created_at AS BIGINT), id) > ($2, $3)
             ORDER BY CAST(created_at AS BIGINT), id LIMIT $4"
        )
    };
}
pub(crate) use {page_of, with_project};

/// A result of the store.
pub(crate) type Result<T, E = StoreError> = std::result::Result<T, E>;

/// The failure of a database operation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// It is gone, slow, full or refused the statement.
    #[error("the database did not answer: {0}")]
    Database(#[from] sqlx::Error),
    /// An unreadable row. [`rows`] records it.
    #[error("column {column} of the row {row} of {table} cannot be read")]
    Unreadable {
        /// Its table.
        table: &'static str,
        /// Which row.
        row: String,
        /// The first column that cannot be read.
        column: &'static str,
    },
    /// The caller's credential was revoked between its authentication and the write.
    #[error("the caller's credential was revoked during the request")]
    ActorRevoked,
}

/// The database, and a watch of its commits.
#[derive(Clone)]
pub(crate) struct Store {
    database: Database,
    clock: Arc<dyn Clock>,
    commits: Arc<Commits>,
    /// When the use of each credential was written down last, by its digest.
    last_used: Arc<Mutex<HashMap<String, UnixMillis>>>,
    admitted: Arc<Admitted>,
    revocations: Option<Arc<Revocations>>,
    /// Leases whose work ended without a result.
    unfinished: Arc<Mutex<VecDeque<UnfinishedLease>>>,
}

/// How often the use of a credential is written down, in milliseconds.
const USE_NOTED_EVERY_MILLIS: i64 = 60_000;

/// Credentials with a known time of last use: more than can be valid.
const LAST_USED_MAX: usize = 4_096;

impl Store {
    /// Opens the database, brings its schema up to date and reads the newest revision.
    pub(crate) async fn open(location: &Location, clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        let database = Database::open(location, &migrations()).await?;
        // Revisions of a new database start at the present millisecond. If the database is created again, its revisions
        // are above all of the former one's, so a gateway that followed the former one gets a snapshot instead of a
        // wrong difference.
        let count_on = async || {
            let begin =
                query("INSERT INTO revision_counter (id, current, oldest) VALUES (1, $1, $1) ON CONFLICT DO NOTHING");
            begin.bind(clock.now().0.max(1)).execute(&database.write).await
        };
        database.first_query(count_on).await.context("starting the change log")?;
        let store = Self {
            database,
            clock,
            commits: Arc::default(),
            last_used: Arc::default(),
            admitted: Arc::default(),
            revocations: None,
            unfinished: Arc::default(),
        };
        store.repair_newest().await.context("writing the mark of the newest revision")?;
        store.committed_elsewhere(store.newest_revision().await.context("reading the change log")?);
        Ok(store)
    }

    /// Changes whenever a transaction of this process, or one of another replica, has committed a change.
    pub(crate) fn commits(&self) -> watch::Receiver<Revision> {
        self.commits.newest.subscribe()
    }

    /// Whether the database went back to an earlier state since the last call.
    pub(crate) fn has_gone_back(&self) -> bool {
        self.commits.has_gone_back.swap(false, Ordering::AcqRel)
    }

    /// Begins a writing transaction.
    pub(crate) async fn write(&self) -> Result<Write> {
        Write::begin(&self.database.write, self.clock.now(), self.commits.clone()).await
    }

    /// Connections for reading.
    pub(crate) fn reader(&self) -> &Pool {
        &self.database.read
    }

    /// A connection with one consistent snapshot for all reads.
    pub(crate) async fn reading(&self) -> Result<Connection> {
        Ok(self.reader().begin(Begin::Snapshot).await?)
    }

    /// Connections for statements without a change for the edge.
    pub(crate) fn writer(&self) -> &Pool {
        &self.database.write
    }

    /// Records in the background that a credential was used, so that clients are served even while the database accepts
    /// no writes. A failed write is not repeated; the next one follows a minute later.
    pub(crate) fn record_use(&self, digest: &str, now: UnixMillis) {
        let mut last_used = self.last_used.lock();
        if last_used.get(digest).is_some_and(|at| now.since(*at) < USE_NOTED_EVERY_MILLIS) {
            return;
        }
        if last_used.len() >= LAST_USED_MAX {
            last_used.clear();
        }
        last_used.insert(digest.to_owned(), now);
        let (writer, digest) = (self.writer().clone(), digest.to_owned());
        tokio::spawn(async move {
            let note = query("UPDATE credentials SET last_used_at = $2 WHERE digest = $1");
            if let Err(error) = note.bind((digest, now.0)).execute(&writer).await {
                tracing::debug!(%error, "cannot record the last use of a credential");
            }
        });
    }

    /// Wakes the followers of this replica because another one has committed.
    pub(crate) fn committed_elsewhere(&self, revision: Revision) {
        self.commits.committed(revision);
    }

    /// The setting of this name. A damaged text is recorded as unreadable and returned as it reads.
    pub(crate) async fn setting(&self, name: &str) -> Result<Option<String>> {
        let value = query_as("SELECT value FROM settings WHERE name = $1");
        let value: Option<Found<(String,)>> = value.bind(name).fetch_optional(self.reader()).await?;
        let key = rows::key(rows::Table::Settings, name, "");
        Ok(value.map(|value| rows::column(self.reader().unreadable(), &key, "value", value)))
    }

    /// Stores a setting.
    pub(crate) async fn set_setting(&self, name: &str, value: &str) -> Result<()> {
        set_setting(name, value).run(self.writer()).await
    }

    /// The database itself, for health checks and to close it.
    pub(crate) fn database(&self) -> Database {
        self.database.clone()
    }
}

fn migrations() -> Migrations {
    chassis::migrations!["0001_schema.sql" or "postgres/0001_schema.sql"]
}

/// The newest version of the database's schema that this version of the service knows.
#[must_use]
pub fn newest_schema() -> i64 {
    migrations().newest()
}

/// The commits that this process knows of.
#[derive(Debug, Default)]
struct Commits {
    /// The revision of the last known commit.
    newest: watch::Sender<Revision>,
    /// The highest revision of the present history.
    highest: AtomicU64,
    /// The database went back to an earlier state, and `has_gone_back` has not been read since.
    has_gone_back: AtomicBool,
}

impl Commits {
    /// Takes a committed revision and wakes followers if it is another one. A lower one wakes them too: the database
    /// went back.
    fn committed(&self, revision: Revision) {
        self.highest.fetch_max(revision.0, Ordering::AcqRel);
        self.newest.send_if_modified(|newest| std::mem::replace(newest, revision) != revision);
    }

    /// Takes the newest revision as read from the database after `highest` was known. If it is lower, the database went
    /// back to an earlier state, for example because a lagging standby took over.
    fn read(&self, newest: Revision, highest: u64) {
        if newest.0 < highest
            && self.highest.compare_exchange(highest, newest.0, Ordering::AcqRel, Ordering::Acquire).is_ok()
        {
            self.has_gone_back.store(true, Ordering::Release);
        }
    }

    fn highest(&self) -> u64 {
        self.highest.load(Ordering::Acquire)
    }
}

/// Stores a setting.
fn set_setting(name: &str, value: &str) -> Query {
    rows::upsert(rows::Table::Settings, &["name"], &[], [("name", name.into()), ("value", value.into())])
}

/// JSON for a column. Our own types always serialise.
pub(crate) fn to_json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
