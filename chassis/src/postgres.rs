//! Opens a PostgreSQL server and configures its connections.
//!
//! Every wait has a limit. A connection or a lock is waited for two seconds ([`crate::sqlite::WAIT_MAX`]); the server
//! ends a statement after four and an idle transaction after thirty. If the server is silent (its machine is down), the
//! caller stops waiting five seconds after its statement: the connection is closed and another one is opened, to the
//! name's current address. TCP's own keepalive would take minutes to notice.
//!
//! Connections use the extended protocol with named statements and their own session settings, so a connection pooler
//! in between must pool sessions, not transactions.

use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool};

use crate::secret::Secret;
use crate::sqlite::WAIT_MAX;

/// Default number of connections of one process, and its bounds. Four are for writing, the others for reading.
pub const CONNECTIONS: u64 = 10;
/// The minimum.
pub const CONNECTIONS_MIN: u64 = 4;
/// The maximum.
pub const CONNECTIONS_MAX: u64 = 200;

/// The longest wait for a statement: a second longer than the server's own limit, so that a live server can report it
/// itself.
pub const STATEMENT_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long a starting process waits for the server before it exits with an error.
pub const START_WAIT_MAX: Duration = Duration::from_mins(1);

/// Pause between attempts of a starting process.
const START_PAUSE: Duration = Duration::from_millis(250);

/// An idle connection is closed after this long, and any after half an hour, so that connections follow a server that
/// moves.
const IDLE_MAX: Duration = Duration::from_mins(2);
const LIFETIME_MAX: Duration = Duration::from_mins(30);

/// How long a returned connection may take to prove that it works.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(1);

/// Session settings of each connection. Milliseconds if there is no unit.
const SESSION: [(&str, &str); 7] = [
    ("lock_timeout", "2000"),
    ("statement_timeout", "4000"),
    // Our code never waits longer between the statements of a transaction.
    ("idle_in_transaction_session_timeout", "30000"),
    // How the server detects that we are gone, and releases our locks.
    ("tcp_keepalives_idle", "15"),
    ("tcp_keepalives_interval", "5"),
    ("tcp_keepalives_count", "3"),
    ("client_min_messages", "warning"),
];

/// Session settings during migrations: another replica may run them, and tables are large.
const MIGRATION_SESSION: [(&str, &str); 2] = [("lock_timeout", "60000"), ("statement_timeout", "600000")];

/// The server and the number of connections. Prints without the password.
#[derive(Clone)]
pub struct PostgresSettings {
    options: PgConnectOptions,
    connections: u32,
}

/// An unusable URL. The error does not repeat it, because it contains a password.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum InvalidUrl {
    /// It cannot be parsed.
    #[error("cannot parse the URL; write it as postgres://user:password@host:5432/database")]
    Unreadable,
    /// It names no database.
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

    /// Overrides [`SESSION`], so that a test need not wait as long.
    #[cfg(test)]
    pub(crate) fn telling<const N: usize>(mut self, session: [(&'static str, &'static str); N]) -> Self {
        self.options = self.options.options(session);
        self
    }

    /// The server and its database, for messages.
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

/// The pool. Connections are opened on demand.
pub(crate) fn open(settings: &PostgresSettings) -> PgPool {
    PgPoolOptions::new()
        .max_connections(settings.connections)
        .acquire_timeout(WAIT_MAX)
        .idle_timeout(IDLE_MAX)
        .max_lifetime(LIFETIME_MAX)
        // Detects a connection to a restarted server before a request gets it.
        .test_before_acquire(true)
        .after_release(|connection, _| {
            // A silent connection must not occupy the pool until TCP gives up.
            Box::pin(async move {
                Ok(tokio::time::timeout(RELEASE_WAIT_MAX, connection.ping()).await.is_ok_and(|answer| answer.is_ok()))
            })
        })
        .connect_lazy_with(settings.options.clone())
}

/// Migrates the schema on a separate connection. Replicas that start concurrently take turns.
///
/// # Errors
/// If the server is unreachable for a minute, refuses, or does not keep acknowledged changes; if a migration fails.
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

/// Waits for a connection that answers; returns it with its `synchronous_commit`.
async fn reach(options: &PgConnectOptions, place: &str) -> anyhow::Result<(PgConnection, String)> {
    let deadline = tokio::time::Instant::now() + START_WAIT_MAX;
    let mut is_logged = false;
    loop {
        let error = match tokio::time::timeout(STATEMENT_WAIT_MAX, attempt(options)).await {
            Ok(Ok(reached)) => return Ok(reached),
            Ok(Err(error)) if !passes(&error) => return Err(error).with_context(|| place.to_owned()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it does not answer".to_owned(),
        };
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "{place}: {error}");
        if !std::mem::replace(&mut is_logged, true) {
            tracing::warn!(error, "{place} is not reachable yet; waiting for it");
        }
        tokio::time::sleep(START_PAUSE).await;
    }
}

/// Repeats `query` until a result that waiting does not change.
pub(crate) async fn wait_for<T>(query: impl AsyncFn() -> Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
    let deadline = tokio::time::Instant::now() + START_WAIT_MAX;
    let mut is_logged = false;
    loop {
        match query().await {
            Err(error) if tokio::time::Instant::now() < deadline && comes_back(&error) => {
                if !std::mem::replace(&mut is_logged, true) {
                    tracing::warn!(%error, "lost the PostgreSQL server; waiting for it");
                }
            }
            answer => return answer,
        }
        tokio::time::sleep(START_PAUSE).await;
    }
}

/// Whether waiting may help a caller of the pool, which has waited already.
fn comes_back(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::PoolTimedOut) || passes(error)
}

/// The first query is part of the attempt: a server that is about to stop may accept a connection and then end it.
async fn attempt(options: &PgConnectOptions) -> Result<(PgConnection, String), sqlx::Error> {
    let mut connection = options.connect().await?;
    let durable = sqlx::query_scalar("SHOW synchronous_commit").fetch_one(&mut connection).await?;
    Ok((connection, durable))
}

/// Whether waiting may help: for a server that is unreachable, starting or stopping, not for one that refuses us.
fn passes(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => true,
        // 57P01: shutting down; 57P02: another process of it crashed; 57P03: starting up; 53300: too many connections.
        sqlx::Error::Database(error) => matches!(error.code().as_deref(), Some("57P01" | "57P02" | "57P03" | "53300")),
        _ => false,
    }
}
