//! Copies of a PostgreSQL database while it is in use, by PostgreSQL's own tools.
//!
//! `pg_dump` copies one snapshot, exported by a transaction that also counts the rows: what the counts say is what the
//! copy holds, whatever is written meanwhile. What is in a database when a copy is put back is moved aside, into a schema of
//! its own; the copy is put back in one transaction, and counts as put back when its rows are there. Until then the
//! database can be made what it was. The tools must not be older than the server, and say so themselves.
//!
//! The password goes to the tools by their environment; a command line can be read by everybody on the machine. A server
//! that is gone, or a tool that is not installed, is an error that says so; an unfinished copy is removed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use reqwest::Url;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::process::Command;

use super::{Contents, digest};
use crate::percent;
use crate::secret::Secret;

/// How long a tool may take: a database of this size belongs to other tools.
const TOOL_TIME_MAX: Duration = Duration::from_hours(6);

/// How long the server may take to accept a connection.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(10);

/// The server ends a session a moment after its process has ended.
const SESSIONS_END_WAIT_MAX: Duration = Duration::from_secs(5);
const SESSIONS_LOOK_EVERY: Duration = Duration::from_millis(50);

/// Over ours alone: counting and waiting for the tools take as long as they take, locks do not.
const SESSION: [(&str, &str); 3] =
    [("statement_timeout", "0"), ("idle_in_transaction_session_timeout", "0"), ("lock_timeout", "10000")];

/// The schemas that a database has relations in, beside what the server and its extensions have made.
const SCHEMAS: &str = "SELECT DISTINCT nspname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE relkind IN ('r', 'p', 'v', 'm', 'S', 'f') AND nspname <> 'information_schema' AND nspname !~ '^pg_'
    AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype = 'e')";

/// Who else uses the database.
const SESSIONS: &str = "SELECT COUNT(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";

/// What the schemas are called that restores moved aside; from the second on with a number.
const ASIDE: &str = "before_restore";

/// One database of a server.
pub struct ServerDatabase {
    options: PgConnectOptions,
    address: Address,
}

/// How the tools are told of a database.
struct Address {
    /// The URL without the password, in libpq's words.
    url: String,
    password: Option<Secret>,
}

impl ServerDatabase {
    /// From a URL as the services have it: `postgres://user:password@host:5432/database`.
    ///
    /// # Errors
    /// When it is no such URL. The words do not repeat it.
    pub fn new(url: &Secret) -> anyhow::Result<Self> {
        let unreadable = || crate::sql::InvalidUrl::Unreadable;
        let text = std::str::from_utf8(url.reveal()).map_err(|_| unreadable())?;
        let is_ours = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
        let options: PgConnectOptions = is_ours.then(|| text.parse().ok()).flatten().ok_or_else(unreadable)?;
        anyhow::ensure!(
            options.get_database().is_some_and(|name| !name.is_empty()),
            crate::sql::InvalidUrl::NoDatabase
        );
        let address = Address::of(Url::parse(text).map_err(|_| unreadable())?);
        Ok(Self { options: options.application_name("tollhouse backup").options(SESSION), address })
    }

    /// The server and its database, for people.
    #[must_use]
    pub fn place(&self) -> String {
        let database = self.options.get_database().unwrap_or_default();
        match self.options.get_socket() {
            Some(socket) => format!("the database {database} at {}", socket.display()),
            None => format!("the database {database} at {}:{}", self.options.get_host(), self.options.get_port()),
        }
    }

    /// Copies the database, which may be in use, to `to`, which must not be there, and reads the copy to its end.
    ///
    /// # Errors
    /// When the server, a tool or the disk does not do its part. Nothing is left then.
    pub async fn copy(&self, to: &Path) -> anyhow::Result<Contents> {
        anyhow::ensure!(!to.exists(), "{} is there already; choose another directory", to.display());
        let copied = self.copy_to(to).await.with_context(|| format!("copying {}", self.place()));
        if copied.is_err() {
            // What is not complete must not look like a backup.
            let _ = std::fs::remove_file(to);
        }
        copied
    }

    async fn copy_to(&self, to: &Path) -> anyhow::Result<Contents> {
        let mut database = self.connect().await?;
        sqlx::query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").execute(&mut database).await?;
        let snapshot: String = sqlx::query_scalar("SELECT pg_export_snapshot()").fetch_one(&mut database).await?;
        let rows = rows(&mut database).await?;
        let mut tool = self.tool("pg_dump");
        tool.args(["--format=custom", "--no-owner", "--no-privileges", "--lock-wait-timeout=10s"]);
        tool.arg(format!("--snapshot={snapshot}")).arg(format!("--exclude-schema={ASIDE}*")).arg("--file").arg(to);
        finish(tool, "pg_dump").await?;
        database.close().await?;
        let (bytes, sha256) = examine(to).await?;
        Ok(Contents { bytes, sha256, rows })
    }

    /// The version of the schema.
    ///
    /// # Errors
    /// When the server does not answer, or none of our services has ever used the database.
    pub async fn schema(&self) -> anyhow::Result<i64> {
        let mut database = self.connect().await?;
        let version = sqlx::query_scalar(super::SCHEMA).fetch_one(&mut database).await;
        let version = version.with_context(|| format!("{} has no schema of ours", self.place()))?;
        database.close().await?;
        Ok(version)
    }

    /// Makes sure that a copy may be put back: that no process uses the database, and that it holds nothing but what one
    /// of our services put there.
    ///
    /// # Errors
    /// When it is otherwise, or the server does not answer.
    pub async fn may_be_replaced(&self) -> anyhow::Result<()> {
        let mut database = self.connect().await?;
        let ended = async {
            while sqlx::query_scalar::<_, i64>(SESSIONS).fetch_one(&mut database).await? > 0 {
                tokio::time::sleep(SESSIONS_LOOK_EVERY).await;
            }
            anyhow::Ok(())
        };
        let in_use = || format!("a process still uses {}; stop it first", self.place());
        tokio::time::timeout(SESSIONS_END_WAIT_MAX, ended).await.with_context(in_use)??;
        let ours = current_schema(&mut database).await?;
        let schemas: Vec<String> = sqlx::query_scalar(SCHEMAS).fetch_all(&mut database).await?;
        database.close().await?;
        let stranger = schemas.iter().find(|schema| **schema != ours && !schema.starts_with(ASIDE));
        if let Some(stranger) = stranger {
            anyhow::bail!("{} has a schema {stranger:?} that is not ours; nothing is restored beside it", self.place());
        }
        Ok(())
    }

    /// Moves what is in the database into a schema of its own, and leaves an empty one in its place. The schema's name;
    /// `None` when there was nothing.
    ///
    /// # Errors
    /// When the server does not do its part. Nothing is changed then.
    pub async fn set_aside(&self) -> anyhow::Result<Option<String>> {
        let mut database = self.connect().await?;
        let mut transaction = database.begin().await?;
        let ours = current_schema(&mut transaction).await?;
        let taken: Vec<String> = sqlx::query_scalar(SCHEMAS).fetch_all(&mut *transaction).await?;
        if !taken.contains(&ours) {
            return Ok(None);
        }
        let names = std::iter::once(ASIDE.to_owned()).chain((2..).map(|count| format!("{ASIDE}_{count}")));
        let all: Vec<String> =
            sqlx::query_scalar("SELECT nspname::text FROM pg_namespace").fetch_all(&mut *transaction).await?;
        let aside = names.into_iter().find(|name| !all.contains(name)).context("no name is left")?;
        let role = self.options.get_username();
        for statement in
            [format!("ALTER SCHEMA {} RENAME TO {aside}", quoted(&ours)), format!("CREATE SCHEMA {}", quoted(&ours))]
        {
            sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut *transaction).await.with_context(|| {
                format!(
                    "what is in {} cannot be moved aside; as the server's administrator, let it be done by its user \
                     (ALTER SCHEMA {} OWNER TO {})",
                    self.place(),
                    quoted(&ours),
                    quoted(role),
                )
            })?;
        }
        transaction.commit().await?;
        database.close().await?;
        Ok(Some(aside))
    }

    /// One number from what was moved aside.
    ///
    /// # Errors
    /// When there is none.
    pub async fn number_aside(&self, aside: &str, column: &str, table: &str) -> anyhow::Result<i64> {
        let mut database = self.connect().await?;
        let question = format!("SELECT {}::bigint FROM {}.{}", quoted(column), quoted(aside), quoted(table));
        let answer = sqlx::query_scalar(sqlx::AssertSqlSafe(question)).fetch_one(&mut database).await?;
        database.close().await?;
        Ok(answer)
    }

    /// Makes the database what it was before [`ServerDatabase::set_aside`].
    ///
    /// # Errors
    /// When the server does not do its part.
    pub async fn take_back(&self, aside: Option<&str>) -> anyhow::Result<()> {
        let mut database = self.connect().await?;
        let mut transaction = database.begin().await?;
        let ours = quoted(&current_schema(&mut transaction).await?);
        let back = aside.map_or_else(
            || format!("CREATE SCHEMA {ours}"),
            |aside| format!("ALTER SCHEMA {} RENAME TO {ours}", quoted(aside)),
        );
        for statement in [format!("DROP SCHEMA {ours} CASCADE"), back] {
            sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        database.close().await?;
        Ok(())
    }

    /// Puts a copy back into this empty database, makes sure that these rows are there, and carries out `statements`.
    ///
    /// # Errors
    /// When the server or the tool does not do its part. What is there then nobody may use:
    /// [`ServerDatabase::take_back`].
    pub async fn put_back(
        &self,
        from: &Path,
        promised: &BTreeMap<String, u64>,
        statements: &[String],
    ) -> anyhow::Result<()> {
        let place = || format!("restoring {}", self.place());
        let mut tool = self.tool("pg_restore");
        tool.args(["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"]).arg(from);
        finish(tool, "pg_restore").await.with_context(place)?;
        self.prepare(promised, statements).await.with_context(place)
    }

    async fn prepare(&self, promised: &BTreeMap<String, u64>, statements: &[String]) -> anyhow::Result<()> {
        let mut database = self.connect().await?;
        let mut transaction = database.begin().await?;
        let found = rows(&mut transaction).await?;
        anyhow::ensure!(found == *promised, "its rows are not those of the backup: {found:?}");
        for statement in statements {
            sqlx::query(sqlx::AssertSqlSafe(statement.clone())).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        database.close().await?;
        Ok(())
    }

    async fn connect(&self) -> anyhow::Result<PgConnection> {
        let connected = tokio::time::timeout(CONNECT_WAIT_MAX, self.options.connect()).await;
        connected.context("it does not answer").and_then(|connected| Ok(connected?)).with_context(|| self.place())
    }

    fn tool(&self, name: &str) -> Command {
        let mut tool = Command::new(name);
        tool.arg("--no-password").arg("--dbname").arg(&self.address.url);
        tool.env_remove("PGPASSWORD");
        if let Some(password) = &self.address.password {
            tool.env("PGPASSWORD", OsStr::new(std::str::from_utf8(password.reveal()).unwrap_or_default()));
        }
        tool
    }
}

/// Reads a copy to its end, as whoever restores it will. Its bytes and its digest.
///
/// # Errors
/// When it is cut short or damaged.
pub async fn examine(path: &Path) -> anyhow::Result<(u64, String)> {
    let mut tool = Command::new("pg_restore");
    tool.arg("--file=-").arg(path);
    finish(tool, "pg_restore").await.with_context(|| format!("{} is damaged", path.display()))?;
    digest(path)
}

/// Where the connection's tables are.
async fn current_schema(database: &mut PgConnection) -> anyhow::Result<String> {
    let schema: Option<String> = sqlx::query_scalar("SELECT current_schema()::text").fetch_one(database).await?;
    schema.context("the database has no schema that its user may use")
}

/// A name as an identifier of SQL.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Rows of every table that the connection sees.
async fn rows(database: &mut PgConnection) -> anyhow::Result<BTreeMap<String, u64>> {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename",
    )
    .fetch_all(&mut *database)
    .await?;
    let mut rows = BTreeMap::new();
    for table in tables {
        // The name comes from the catalogue, quoted as an identifier.
        let count = format!("SELECT COUNT(*) FROM {}", quoted(&table));
        let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(&mut *database).await?;
        rows.insert(table, count.unsigned_abs());
    }
    Ok(rows)
}

async fn finish(mut tool: Command, name: &str) -> anyhow::Result<()> {
    tool.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let missing = || format!("{name} cannot be run; install PostgreSQL's client programs (package postgresql-client)");
    let child = tool.spawn().with_context(missing)?;
    let output = tokio::time::timeout(TOOL_TIME_MAX, child.wait_with_output()).await;
    let output = output.with_context(|| format!("{name} did not come to an end"))??;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{name}: {}", said.trim());
    Ok(())
}

impl Address {
    fn of(mut url: Url) -> Self {
        let mut password = url.password().map(percent::decoded);
        // Neither can fail: what has a host may have a user.
        let _ = url.set_password(None);
        let mut kept = Vec::new();
        for (name, value) in url.query_pairs() {
            match &*name {
                "password" => password = Some(value.as_bytes().to_vec()),
                "sslmode" | "ssl-mode" => kept.push(("sslmode", value.into_owned())),
                "sslrootcert" | "ssl-root-cert" | "ssl-ca" => kept.push(("sslrootcert", value.into_owned())),
                "sslcert" | "ssl-cert" => kept.push(("sslcert", value.into_owned())),
                "sslkey" | "ssl-key" => kept.push(("sslkey", value.into_owned())),
                "host" | "hostaddr" => kept.push(("host", value.into_owned())),
                "port" => kept.push(("port", value.into_owned())),
                "dbname" => kept.push(("dbname", value.into_owned())),
                "user" => kept.push(("user", value.into_owned())),
                // What else there may be tunes our own connections.
                _ => {}
            }
        }
        url.set_query(None);
        if !kept.is_empty() {
            // Not as a form: libpq does not take a plus for a space.
            let pairs: Vec<String> =
                kept.iter().map(|(name, value)| format!("{name}={}", percent::segment(value))).collect();
            url.set_query(Some(&pairs.join("&")));
        }
        Self { url: url.into(), password: password.map(Secret::new) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> (String, Option<String>) {
        let database = ServerDatabase::new(&Secret::parse_password(url).unwrap()).unwrap();
        let password = database.address.password.as_ref();
        (database.address.url.clone(), password.map(|secret| String::from_utf8(secret.reveal().to_vec()).unwrap()))
    }

    #[test]
    fn tools_are_told_everything_but_the_password_on_their_command_line() {
        let (url, password) = address(
            "postgres://shop:hunter%202%@db.example:6543/orders?ssl-mode=verify-full&sslrootcert=/etc/a%20b.pem\
             &statement-cache-capacity=7",
        );
        assert_eq!(url, "postgres://shop@db.example:6543/orders?sslmode=verify-full&sslrootcert=%2Fetc%2Fa%20b.pem");
        assert_eq!(password.as_deref(), Some("hunter 2%"));
        let (url, password) = address("postgres://shop@db.example/orders?password=hunter2");
        assert_eq!((url.as_str(), password.as_deref()), ("postgres://shop@db.example/orders", Some("hunter2")));
        let database = ServerDatabase::new(&Secret::parse_password("postgres://u:hunter2@h/d").unwrap()).unwrap();
        let tool = database.tool("pg_dump");
        let line: Vec<String> = tool.as_std().get_args().map(|part| part.to_string_lossy().into_owned()).collect();
        assert_eq!(line, ["--no-password", "--dbname", "postgres://u@h/d"]);
        assert!(
            tool.as_std().get_envs().any(|(name, value)| name == "PGPASSWORD" && value == Some("hunter2".as_ref()))
        );
    }

    #[test]
    fn what_is_no_url_of_a_database_is_refused_without_repeating_it() {
        for wrong in ["mysql://u:hunter2@h/d", "hunter2", "postgres://u:hunter2@h"] {
            let error = ServerDatabase::new(&Secret::parse_password(wrong).unwrap()).err().unwrap().to_string();
            assert!(error.contains("postgres://user:password@host") && !error.contains("hunter2"), "{error}");
        }
    }
}
