//! A PostgreSQL server: opening it, and what is asked of every connection.
//!
//! Nobody waits for ever. A connection or a lock is waited for two seconds ([`crate::sqlite::WAIT_MAX`]), the server
//! ends a statement after four and an idle transaction after thirty, and a server that says nothing at all (its machine
//! is gone, and nobody tells) is given up five seconds after it was asked: the connection is closed and another one is
//! opened, to wherever the name leads by then. TCP's own keepalive would take minutes to notice.
//!
//! Connections speak the extended protocol with named statements and settings of their own, so a pooler between us and
//! the server must pool sessions and not transactions.

use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool};

use crate::secret::Secret;
use crate::sqlite::WAIT_MAX;

/// Connections of one process unless configured, and their bounds. Four are for changes, the others for reading.
pub const CONNECTIONS: u64 = 10;
/// The fewest.
pub const CONNECTIONS_MIN: u64 = 4;
/// The most.
pub const CONNECTIONS_MAX: u64 = 200;

/// How long a statement is waited for: a second longer than the server's own limit, so that a server that is there can
/// say so itself.
pub const STATEMENT_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long a process that starts waits for a server that is not there yet, before it ends and says so.
pub const START_WAIT_MAX: Duration = Duration::from_mins(1);

/// Between two attempts of a process that starts.
const START_PAUSE: Duration = Duration::from_millis(250);

/// An unused connection is closed after this long, and any after half an hour, so that they follow a server that moves.
const IDLE_MAX: Duration = Duration::from_mins(2);
const LIFETIME_MAX: Duration = Duration::from_mins(30);

/// How long a connection may take to show that it is in order when it goes back to the pool.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(1);

/// What the server is told about each of our connections. Milliseconds where there is no unit.
const SESSION: [(&str, &str); 7] = [
    ("lock_timeout", "2000"),
    ("statement_timeout", "4000"),
    // Between the statements of a transaction nothing of ours waits for longer.
    ("idle_in_transaction_session_timeout", "30000"),
    // How the server notices that we are gone, and lets go of what we had locked.
    ("tcp_keepalives_idle", "15"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "3"),
    ("client_min_messages", "warning"),
];

/// Settings of this session while the schema is brought up to date: another replica may be at it, and tables are large.
const MIGRATION_SESSION: [(&str, &str); 2] = [("lock_timeout", "60000"), ("statement_timeout", "600000")];

/// Which server, and how many connections to it. Prints without the password.
#[derive(Clone)]
pub struct PostgresSettings {
    options: PgConnectOptions,
    connections: u32,
}

/// A URL that leads to no database. Does not repeat it: there is a password in it.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum InvalidUrl {
    /// It cannot be read.
    #[error("the URL cannot be read; write it as postgres://user:password@host:5432/database")]
    Unreadable,
    /// There is no name of a database in it.
    #[error("the URL names no database; write it as postgres://user:password@host:5432/database")]
    NoDatabase,
}

impl PostgresSettings {
    /// From a URL, `postgres://user:password@host:5432/database?sslmode=verify-full&sslrootcert=/path/ca.pem`.
    pub fn new(url: Secret, connections: u32) -> Result<Self, InvalidUrl> {
        let text = std::str::from_utf8(url.reveal()).map_err(|_| InvalidUrl::Unreadable)?;
        let is_ours = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
        let options: PgConnectOptions = is_ours.then(|| text.parse().ok()).flatten().ok_or(InvalidUrl::Unreadable)?;
        drop(url);
        if options.get_database().is_none_or(str::is_empty) {
            return Err(InvalidUrl::NoDatabase);
        }
        Ok(Self { options: options.application_name("tollhouse").options(SESSION), connections })
    }

    /// Another database of the same server.
    #[must_use]
    pub fn database(self, name: &str) -> Self {
        Self { options: self.options.database(name), ..self }
    }

    /// With a session that is told something else than [`SESSION`], so that a test need not wait as long.
    #[cfg(test)]
    pub(crate) fn telling<const N: usize>(mut self, session: [(&'static str, &'static str); N]) -> Self {
        self.options = self.options.options(session);
        self
    }

    /// The server and its database, for people.
    fn place(&self) -> String {
        let database = self.options.get_database().unwrap_or_default();
        match self.options.get_socket() {
            Some(socket) => format!("{database} at {}", socket.display()),
            None => format!("{database} at {}:{}", self.options.get_host(), self.options.get_port()),
        }
    }
}

impl fmt::Debug for PostgresSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgreSQL database {} with {} connections", self.place(), self.connections)
    }
}

/// The pool. Connections are opened when they are needed.
pub(crate) fn open(settings: &PostgresSettings) -> PgPool {
    PgPoolOptions::new()
        .max_connections(settings.connections)
        .acquire_timeout(WAIT_MAX)
        .idle_timeout(IDLE_MAX)
        .max_lifetime(LIFETIME_MAX)
        // A connection whose server was restarted meanwhile is found out before a request gets it.
        .test_before_acquire(true)
        .after_release(|connection, _| {
            // One that does not answer must not keep its place in the pool for as long as TCP hopes.
            Box::pin(async move {
                Ok(tokio::time::timeout(RELEASE_WAIT_MAX, connection.ping()).await.is_ok_and(|answer| answer.is_ok()))
            })
        })
        .connect_lazy_with(settings.options.clone())
}

/// Brings the schema up to date, on a connection of its own that is waited for. Replicas that start at once take turns.
///
/// # Errors
/// When the server is not there after a minute or refuses, or does not keep what it acknowledges; when the schema cannot
/// be brought up to date.
pub(crate) async fn migrate(settings: &PostgresSettings, migrator: &Migrator) -> anyhow::Result<()> {
    let place = format!("the PostgreSQL database {}", settings.place());
    let options = settings.options.clone().options(MIGRATION_SESSION);
    let (mut connection, durable) = reach(&options, &place).await?;
    anyhow::ensure!(
        durable != "off",
        "{place} has synchronous_commit off: it acknowledges changes that it may lose; set it to on for this database"
    );
    let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema()";
    let tables = sqlx::query_scalar(tables).fetch_all(&mut connection).await;
    let tables = tables.with_context(|| format!("reading the schema of {place}"))?;
    crate::origin::must_be_ours(&mut connection, tables, migrator).await.with_context(|| place.clone())?;
    let migrated = migrator.run(&mut connection).await;
    migrated.with_context(|| format!("bringing the schema of {place} up to date"))?;
    if let Err(error) = connection.close().await {
        tracing::debug!(%error, "the connection of the migrations did not close cleanly");
    }
    Ok(())
}

/// A connection that has answered, which is waited for, and what `synchronous_commit` is on it.
async fn reach(options: &PgConnectOptions, place: &str) -> anyhow::Result<(PgConnection, String)> {
    let deadline = tokio::time::Instant::now() + START_WAIT_MAX;
    let mut told = false;
    loop {
        let error = match tokio::time::timeout(STATEMENT_WAIT_MAX, attempt(options)).await {
            Ok(Ok(reached)) => return Ok(reached),
            Ok(Err(error)) if !passes(&error) => return Err(error).with_context(|| place.to_owned()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it does not answer".to_owned(),
        };
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "{place}: {error}");
        if !std::mem::replace(&mut told, true) {
            tracing::warn!(error, "{place} is not there yet; waiting for it");
        }
        tokio::time::sleep(START_PAUSE).await;
    }
}

/// Asks until there is an answer that waiting does not change.
pub(crate) async fn wait_for<T>(ask: impl AsyncFn() -> Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
    let deadline = tokio::time::Instant::now() + START_WAIT_MAX;
    let mut told = false;
    loop {
        match ask().await {
            Err(error) if tokio::time::Instant::now() < deadline && comes_back(&error) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(%error, "the PostgreSQL server is gone again; waiting for it");
                }
            }
            answer => return answer,
        }
        tokio::time::sleep(START_PAUSE).await;
    }
}

/// Whether waiting may help whoever asks through the pool, which has waited already.
fn comes_back(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::PoolTimedOut) || passes(error)
}

/// The first question is part of the attempt: a server that is about to stop may take a connection and end it then.
async fn attempt(options: &PgConnectOptions) -> Result<(PgConnection, String), sqlx::Error> {
    let mut connection = options.connect().await?;
    let durable = sqlx::query_scalar("SHOW synchronous_commit").fetch_one(&mut connection).await?;
    Ok((connection, durable))
}

/// Whether waiting may help: a server that cannot be reached, is starting or is about to stop, not one that refuses us.
fn passes(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => true,
        // 57P01: shutting down; 57P02: another process of it crashed; 57P03: starting up; 53300: no place left.
        sqlx::Error::Database(error) => matches!(error.code().as_deref(), Some("57P01" | "57P02" | "57P03" | "53300")),
        _ => false,
    }
}
