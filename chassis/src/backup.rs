//! Backups of an embedded database in use, the checks of a backup, and the replacement of databases with backups.
//! PostgreSQL has its own tools for the first two.
//!
//! A backup is one read transaction of SQLite (`VACUUM INTO`): it holds everything committed when it began, and blocks
//! no writer. Copying the file itself would miss the write-ahead log. Its digest and SQLite's check of every page and
//! index detect a truncated or damaged backup.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use aws_lc_rs::digest::{Context as Digest, SHA256};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};

/// The ending of a file that exists beside a database while [`replace`] runs.
const MARK: &str = "restoring";

/// How long a copy waits for a lock of the process that uses the database.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// The contents of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// Bytes of the file.
    pub bytes: u64,
    /// SHA-256 of the file, in hex.
    pub sha256: String,
    /// Rows of every table.
    pub rows: BTreeMap<String, u64>,
}

/// Copies the database at `from`, which may be in use, to `to`, which must not exist, and checks the copy.
///
/// # Errors
/// If a file cannot be read or written, or the copy does not pass [`examine`].
pub async fn copy(from: &Path, to: &Path) -> anyhow::Result<Contents> {
    is_whole(from)?;
    anyhow::ensure!(!to.exists(), "{} exists already; choose another directory", to.display());
    let mut source = open(from).await?;
    let target = to.to_str().context("the backup's path is not UTF-8")?;
    sqlx::query("VACUUM INTO $1")
        .bind(target)
        .execute(&mut source)
        .await
        .with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
    source.close().await?;
    // Without this, a power failure could lose the backup.
    std::fs::File::open(to)?.sync_all()?;
    crate::durable::sync_names(to.parent().unwrap_or(Path::new("/")))?;
    examine(to).await
}

/// Checks a whole database: every page, index and reference must be valid, and there must be no triggers or views. Ours
/// have none; they would be SQL of others that runs with our statements.
///
/// # Errors
/// With SQLite's description of the damage.
pub async fn examine(path: &Path) -> anyhow::Result<Contents> {
    let mut database = open(path).await?;
    let wrong = |what: &str| format!("{} is damaged: {what}", path.display());
    let verdicts: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check(3)")
        .fetch_all(&mut database)
        .await
        .with_context(|| wrong("cannot be read"))?;
    anyhow::ensure!(verdicts == ["ok"], wrong(&verdicts.join("; ")));
    let stray: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM pragma_foreign_key_check").fetch_one(&mut database).await?;
    anyhow::ensure!(stray == 0, wrong(&format!("{stray} rows refer to missing rows")));
    let own: Option<(String, String)> =
        sqlx::query_as("SELECT type, name FROM sqlite_schema WHERE type IN ('trigger', 'view') LIMIT 1")
            .fetch_optional(&mut database)
            .await?;
    if let Some((kind, name)) = own {
        anyhow::bail!("{} has a {kind} ({name:?}), which Tollhouse never creates: do not use it", path.display());
    }
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
    )
    .fetch_all(&mut database)
    .await?;
    let mut rows = BTreeMap::new();
    for table in tables {
        // The name comes from the schema and is quoted as an identifier.
        let count = format!("SELECT COUNT(*) FROM \"{}\"", table.replace('"', "\"\""));
        let count: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(&mut database).await?;
        rows.insert(table, count.unsigned_abs());
    }
    database.close().await?;
    let (bytes, sha256) = digest(path)?;
    Ok(Contents { bytes, sha256, rows })
}

/// The schema version of a database.
///
/// # Errors
/// If it has no Tollhouse schema.
pub async fn schema(path: &Path) -> anyhow::Result<i64> {
    let mut database = open(path).await?;
    let version = sqlx::query_scalar("SELECT MAX(version) FROM _sqlx_migrations").fetch_one(&mut database).await;
    database.close().await?;
    version.with_context(|| format!("{} has no Tollhouse schema", path.display()))
}

/// Checks that no process has the database open, which is required to replace its file. Merges its write-ahead log into
/// the file.
///
/// # Errors
/// If a process has it open. A damaged file counts as unused.
pub async fn is_unused(path: &Path) -> anyhow::Result<()> {
    let Ok(mut database) = open(path).await else { return Ok(()) };
    // Leaving write-ahead mode needs exclusive access to the file.
    let taken = sqlx::query("PRAGMA journal_mode = DELETE").execute(&mut database).await;
    // Otherwise the next check would find this connection.
    let _ = database.close().await;
    match taken {
        Err(sqlx::Error::Database(error)) if error.message().contains("locked") => {
            anyhow::bail!("a process still has {} open; stop it first", path.display())
        }
        _ => Ok(()),
    }
}

/// Replaces all of these unused databases with other files, or none. If the process is killed in between, no process
/// opens any of the databases until the replacement is run again ([`is_whole`]). The old files are kept beside the new
/// ones, under the returned names.
///
/// # Errors
/// If a file cannot be moved. The databases are then in the state after a kill.
pub fn replace(files: &[(PathBuf, PathBuf)]) -> anyhow::Result<Vec<PathBuf>> {
    let kept: Vec<_> = files.iter().filter(|(_, place)| place.exists()).map(|(_, place)| free_name(place)).collect();
    for step in steps(files) {
        step.carry_out()?;
    }
    Ok(kept)
}

/// Checks that a database was not left half replaced by [`replace`].
///
/// # Errors
/// If it was.
pub fn is_whole(path: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(
        !beside(path, MARK).exists(),
        "the restore of {} was interrupted: run `tollhouse restore` again",
        path.display()
    );
    Ok(())
}

/// The steps of [`replace`], in order. After each step, everything up to it is on disk.
#[derive(Debug)]
enum Step {
    Mark(PathBuf),
    Move(PathBuf, PathBuf),
    Unmark(PathBuf),
}

fn steps(files: &[(PathBuf, PathBuf)]) -> Vec<Step> {
    let marks = || files.iter().map(|(_, place)| beside(place, MARK));
    let mut steps: Vec<_> = marks().map(Step::Mark).collect();
    for (file, place) in files {
        let kept = free_name(place);
        // A write-ahead log of the old file must not be applied to the new one.
        for ending in ["-wal", "-shm", ""] {
            let with = |path: &Path| PathBuf::from(format!("{}{ending}", path.display()));
            if with(place).exists() {
                steps.push(Step::Move(with(place), with(&kept)));
            }
        }
        steps.push(Step::Move(file.clone(), place.clone()));
    }
    steps.extend(marks().map(Step::Unmark));
    steps
}

impl Step {
    fn carry_out(&self) -> anyhow::Result<()> {
        let (done, place) = match self {
            Self::Mark(path) => (std::fs::write(path, ""), path),
            Self::Move(from, to) => (std::fs::rename(from, to), to),
            Self::Unmark(path) => (std::fs::remove_file(path), path),
        };
        let done = done.and_then(|()| crate::durable::sync_names(place.parent().unwrap_or(Path::new("/"))));
        done.with_context(|| format!("{self:?}"))
    }
}

/// A free name for the old file: files kept by earlier restores stay.
fn free_name(place: &Path) -> PathBuf {
    let name = |number: u32| if number == 1 { "before-restore".to_owned() } else { format!("before-restore-{number}") };
    let mut names = (1..u32::MAX).map(|number| beside(place, &name(number)));
    names.find(|path| !path.exists()).unwrap_or_else(|| beside(place, "before-restore"))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    PathBuf::from(format!("{}.{ending}", path.display()))
}

async fn open(path: &Path) -> anyhow::Result<SqliteConnection> {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(false).busy_timeout(LOCK_WAIT_MAX);
    options.connect().await.with_context(|| format!("opening the database {}", path.display()))
}

/// Size of a file, and its SHA-256 in hex.
///
/// # Errors
/// If it cannot be read.
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
    async fn a_copy_of_a_database_in_use_has_all_committed_changes() {
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
        assert!(copy(&from, &to).await.is_err(), "an existing file is not overwritten");
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
        let words = format!("{:#}", examine(&to).await.expect_err("a backup with a damaged page is refused"));
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
    async fn a_database_in_use_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shop.sqlite");
        let database = shop(&path).await;
        add(&database, "one").await;
        assert!(is_unused(&path).await.is_err());
        database.close().await;
        is_unused(&path).await.unwrap();
        assert_eq!(examine(&path).await.unwrap().rows["items"], 1);
    }

    /// The name in the database, if a process can open it.
    async fn says(path: &Path) -> Option<String> {
        let database = Sqlite::open(path).await.ok()?;
        let name = sqlx::query_scalar("SELECT name FROM items").fetch_one(&database.write).await.unwrap();
        database.close().await;
        Some(name)
    }

    #[tokio::test]
    async fn databases_are_replaced_together_wherever_the_process_is_killed() {
        let mut outcomes = Vec::new();
        for killed_after in 0.. {
            let directory = tempfile::tempdir().unwrap();
            let path = |name: &str| directory.path().join(name);
            let files = ["domains", "orders"].map(|name| (path(&format!("{name}.new")), path(name)));
            for (file, place) in &files {
                for (path, name) in [(file, "new"), (place, "old")] {
                    let database = shop(path).await;
                    add(&database, name).await;
                    database.close().await;
                }
                // From a database that was not closed.
                std::fs::write(format!("{}-shm", place.display()), "").unwrap();
            }
            let steps = steps(&files);
            for step in steps.iter().take(killed_after) {
                step.carry_out().unwrap();
            }
            let found = [says(&files[0].1).await, says(&files[1].1).await].map(|name| name.unwrap_or("refused".into()));
            assert!(killed_after > 1 || found[1] == "old", "before it begins");
            if killed_after > 1 && killed_after < steps.len() - 1 {
                assert_eq!(found, ["refused", "refused"], "after {killed_after} of {steps:?}");
                assert!(copy(&files[0].1, &path("copy")).await.is_err(), "half of a restore is not backed up");
            }
            // Run again, with new files.
            if killed_after == 4 {
                for (file, place) in &files {
                    let _ = std::fs::remove_file(file);
                    let database = shop(file).await;
                    add(&database, "again").await;
                    database.close().await;
                    is_unused(place).await.unwrap();
                }
                replace(&files).unwrap();
                assert_eq!(says(&files[1].1).await.as_deref(), Some("again"));
                assert_eq!(says(&path("domains.before-restore")).await.as_deref(), Some("old"), "it is kept");
            }
            outcomes.push(found);
            if killed_after == steps.len() {
                break;
            }
        }
        assert_eq!(outcomes.first().unwrap(), &["old", "old"]);
        assert_eq!(outcomes.last().unwrap(), &["new", "new"]);
    }
}
