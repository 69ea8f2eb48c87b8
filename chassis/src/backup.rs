//! Copies of a database while it is in use, and the checks that a copy must pass before anybody relies on it. Here those
//! of the embedded database; those of a PostgreSQL server are in `server`.
//!
//! A copy is one reading transaction of SQLite (`VACUUM INTO`): it holds what was committed when it began, whatever is
//! written meanwhile, and it holds up nobody. Copying the file itself would miss the write-ahead log. A copy that was
//! cut short or damaged is found by its digest and by SQLite's own check of every page and index.

mod server;

pub use server::{ServerDatabase, examine as examine_dump};

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use aws_lc_rs::digest::{Context as Digest, SHA256};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};

/// How long a copy waits for a lock of the process that uses the database.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// The version of a schema, which the migrations of both databases note.
const SCHEMA: &str = "SELECT MAX(version) FROM _sqlx_migrations";

/// What a copy holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Bytes of the file.
    pub bytes: u64,
    /// SHA-256 of the file, in hex.
    pub sha256: String,
    /// Rows of every table.
    pub rows: BTreeMap<String, u64>,
}

/// Copies the database at `from`, which may be in use, to `to`, which must not be there, and checks the copy.
///
/// # Errors
/// When it cannot be read or written, or the copy does not pass [`examine`].
pub async fn copy(from: &Path, to: &Path) -> anyhow::Result<Contents> {
    anyhow::ensure!(!to.exists(), "{} is there already; choose another directory", to.display());
    let mut source = open(from).await?;
    let target = to.to_str().context("the backup's path is not UTF-8")?;
    sqlx::query("VACUUM INTO $1")
        .bind(target)
        .execute(&mut source)
        .await
        .with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
    source.close().await?;
    // What a backup is worth after a power cut.
    std::fs::File::open(to)?.sync_all()?;
    crate::durable::sync_names(to.parent().unwrap_or(Path::new("/")))?;
    examine(to).await
}

/// Reads a whole database: every page, index and reference must be sound, and it has no triggers and no views. Ours never
/// have any, and they would be somebody's SQL that runs with our statements.
///
/// # Errors
/// With SQLite's own words for what is wrong with it.
pub async fn examine(path: &Path) -> anyhow::Result<Contents> {
    let mut database = open(path).await?;
    let wrong = |what: &str| format!("{} is damaged: {what}", path.display());
    let verdicts: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check(3)")
        .fetch_all(&mut database)
        .await
        .with_context(|| wrong("it cannot be read"))?;
    anyhow::ensure!(verdicts == ["ok"], wrong(&verdicts.join("; ")));
    let stray: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM pragma_foreign_key_check").fetch_one(&mut database).await?;
    anyhow::ensure!(stray == 0, wrong(&format!("{stray} rows refer to nothing")));
    let own: Option<(String, String)> =
        sqlx::query_as("SELECT type, name FROM sqlite_schema WHERE type IN ('trigger', 'view') LIMIT 1")
            .fetch_optional(&mut database)
            .await?;
    if let Some((kind, name)) = own {
        anyhow::bail!("{} has a {kind} ({name:?}), which no version of ours makes: do not use it", path.display());
    }
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
    )
    .fetch_all(&mut database)
    .await?;
    let mut rows = BTreeMap::new();
    for table in tables {
        // The name comes from the schema, quoted as an identifier.
        let count = format!("SELECT COUNT(*) FROM \"{}\"", table.replace('"', "\"\""));
        let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(&mut database).await?;
        rows.insert(table, count.unsigned_abs());
    }
    database.close().await?;
    let (bytes, sha256) = digest(path)?;
    Ok(Contents { bytes, sha256, rows })
}

/// Carries out statements on a database that nobody uses yet, all or none.
///
/// # Errors
/// When one of them fails.
pub async fn amend(path: &Path, statements: &[String]) -> anyhow::Result<()> {
    let mut database = open(path).await?;
    let mut transaction = database.begin().await?;
    for statement in statements {
        sqlx::query(sqlx::AssertSqlSafe(statement.clone()))
            .execute(&mut *transaction)
            .await
            .with_context(|| format!("preparing {}", path.display()))?;
    }
    transaction.commit().await?;
    database.close().await?;
    Ok(())
}

/// One number from a database.
///
/// # Errors
/// When there is none.
pub async fn number(path: &Path, question: &'static str) -> anyhow::Result<i64> {
    let mut database = open(path).await?;
    let answer = sqlx::query_scalar(question).fetch_one(&mut database).await?;
    database.close().await?;
    Ok(answer)
}

/// The version of a database's schema.
///
/// # Errors
/// When it has none of ours.
pub async fn schema(path: &Path) -> anyhow::Result<i64> {
    number(path, SCHEMA).await.with_context(|| format!("{} has no schema of ours", path.display()))
}

/// Makes sure that no process has the database open: only then may its file be replaced. Leaves it as one file, with its
/// write-ahead log taken in.
///
/// # Errors
/// When somebody has. A file that is no database any more is nobody's.
pub async fn is_unused(path: &Path) -> anyhow::Result<()> {
    let Ok(mut database) = open(path).await else { return Ok(()) };
    // Leaving the write-ahead log takes the file for oneself alone.
    let taken = sqlx::query("PRAGMA journal_mode = DELETE").execute(&mut database).await;
    // Or whoever looks again would find us.
    let _ = database.close().await;
    match taken {
        Err(sqlx::Error::Database(error)) if error.message().contains("locked") => {
            anyhow::bail!("a process still has {} open; stop it first", path.display())
        }
        _ => Ok(()),
    }
}

async fn open(path: &Path) -> anyhow::Result<SqliteConnection> {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(false).busy_timeout(LOCK_WAIT_MAX);
    options.connect().await.with_context(|| format!("opening the database {}", path.display()))
}

/// Bytes of a file, and their SHA-256 in hex.
///
/// # Errors
/// When it cannot be read.
pub fn digest(path: &Path) -> anyhow::Result<(u64, String)> {
    let mut file = std::fs::File::open(path).with_context(|| format!("reading {}", path.display()))?;
    let (mut digest, mut bytes, mut piece) = (Digest::new(&SHA256), 0_u64, vec![0; 256 * 1024]);
    loop {
        let read = file.read(&mut piece).with_context(|| format!("reading {}", path.display()))?;
        if read == 0 {
            break;
        }
        digest.update(piece.get(..read).unwrap_or_default());
        bytes += u64::try_from(read).unwrap_or(0);
    }
    let hex = digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((bytes, hex))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::Sqlite;

    async fn shop(path: &Path) -> Sqlite {
        let database = Sqlite::open(path).await.unwrap();
        sqlx::query("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT)").execute(&database.write).await.unwrap();
        database
    }

    async fn add(database: &Sqlite, name: &str) {
        sqlx::query("INSERT INTO items (name) VALUES ($1)").bind(name).execute(&database.write).await.unwrap();
    }

    #[tokio::test]
    async fn a_copy_of_a_database_in_use_holds_what_was_committed() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("shop.sqlite"), directory.path().join("copy.sqlite"));
        let database = shop(&from).await;
        add(&database, "committed").await;
        let mut open = database.write.begin().await.unwrap();
        sqlx::query("INSERT INTO items (name) VALUES ('not yet')").execute(&mut *open).await.unwrap();
        let contents = copy(&from, &to).await.unwrap();
        open.commit().await.unwrap();
        assert_eq!(contents.rows, BTreeMap::from([("items".to_owned(), 1)]));
        assert_eq!(examine(&to).await.unwrap(), contents);
        assert!(copy(&from, &to).await.is_err(), "what is there is not overwritten");
        assert_eq!(number(&from, "SELECT COUNT(*) FROM items").await.unwrap(), 2);
    }

    #[tokio::test]
    async fn damage_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("shop.sqlite"), directory.path().join("copy.sqlite"));
        let database = shop(&from).await;
        for round in 0..500 {
            add(&database, &format!("{round}-{}", "x".repeat(100))).await;
        }
        let sound = copy(&from, &to).await.unwrap();
        let mut bytes = std::fs::read(&to).unwrap();
        let middle = bytes.len() / 2 / 4096 * 4096;
        bytes[middle..middle + 64].fill(0xff);
        std::fs::write(&to, &bytes).unwrap();
        let words = format!("{:#}", examine(&to).await.expect_err("a damaged page is no backup"));
        assert!(words.contains("is damaged"), "{words}");
        std::fs::write(&to, bytes.get(..middle).unwrap()).unwrap();
        assert!(examine(&to).await.map_or(true, |cut| cut.sha256 != sound.sha256), "half a file is not the backup");
        std::fs::write(&to, "no database at all, but text of some length").unwrap();
        assert!(examine(&to).await.is_err());
    }

    #[tokio::test]
    async fn a_database_with_sql_of_its_own_is_no_backup_of_ours() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shop.sqlite");
        let database = shop(&path).await;
        for (kind, planted) in [
            ("trigger", "CREATE TRIGGER planted AFTER DELETE ON items BEGIN DELETE FROM items; END"),
            ("view", "CREATE VIEW planted AS SELECT * FROM items"),
        ] {
            sqlx::query(planted).execute(&database.write).await.unwrap();
            let words = format!("{:#}", examine(&path).await.expect_err(planted));
            assert!(words.contains(&format!("has a {kind} (\"planted\")")), "{words}");
            let dropped = sqlx::AssertSqlSafe(format!("DROP {kind} planted"));
            sqlx::query(dropped).execute(&database.write).await.unwrap();
        }
        examine(&path).await.unwrap();
    }

    #[tokio::test]
    async fn a_database_that_somebody_uses_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shop.sqlite");
        let database = shop(&path).await;
        add(&database, "one").await;
        assert!(is_unused(&path).await.is_err());
        database.close().await;
        is_unused(&path).await.unwrap();
        assert_eq!(number(&path, "SELECT COUNT(*) FROM items").await.unwrap(), 1);
    }
}
