//! `tollhouse backup` and `tollhouse restore`: copies SQLite databases of a running platform, verifies and restores
//! them. PostgreSQL has its own tools; `finish` prepares a database that they restored.
//!
//! A backup is a directory with one file per database, and `backup.json` with their digests and rows, written last:
//! without it the backup is incomplete. It contains no secrets: with the sealing secret, a reader of the backup would
//! have all private keys.
//!
//! A user with write access to a backup could add an API key or SQL. Therefore the platform's secret signs
//! `backup.json`, which has the digests of all files, and a file is opened only after its digest was verified. An older
//! backup is also validly signed, and in place of the newest one it would undo later revocations. Therefore the data
//! directory records when the newest backup was made, and an older one needs `--older`.
//!
//! The databases are prepared as copies, which then replace the current ones together.

mod finish;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use chassis::backup::{self, Contents};
use chassis::clock::{Clock as _, SystemClock};
use chassis::secret::{Secret, write_private};
use clap::Args;
use domains_service::Report;
use serde_json::{Value, json};

use crate::arguments::Common;
use crate::directory::{Directory, REVOCATIONS};
use crate::output::{answer, moment, table};

pub(super) use finish::{FinishRestore, finish_restore};

/// The manifest; its presence means that the backup is complete.
const MANIFEST: &str = "backup.json";

/// The signature of the manifest.
const SIGNATURE: &str = "backup.json.sig";

/// The file in the data directory with the time of the newest backup, in seconds.
const NEWEST: &str = "backup.newest";

/// Most directories beside a backup that are searched for a newer one.
const BESIDE_MAX: usize = 10_000;

/// One of the two databases.
struct Part {
    name: &'static str,
    /// Its file.
    file: PathBuf,
    /// Its copy in the backup.
    copy: PathBuf,
    /// The newest schema version that this program supports.
    newest_schema: i64,
}

fn parts(directory: &Directory, options: &Databases) -> [Part; 2] {
    let part = |name: &'static str, file: &Option<PathBuf>, newest_schema| Part {
        name,
        file: file.clone().unwrap_or_else(|| directory.path(&format!("{name}/{name}.sqlite"))),
        copy: options.directory.join(format!("{name}.sqlite")),
        newest_schema,
    };
    [
        part("domains", &options.domains_database, domains_service::newest_schema()),
        part("orders", &options.orders_database, orders_service::store::newest_schema()),
    ]
}

/// Arguments of `tollhouse backup`, shared with `tollhouse restore`.
#[derive(Debug, Args)]
pub struct Databases {
    /// The directory of the backup.
    pub directory: PathBuf,
    /// The database of the domains-service. Default: the one in the data directory.
    #[arg(long)]
    pub domains_database: Option<PathBuf>,
    /// The database of the orders-service. Default: the one in the data directory.
    #[arg(long)]
    pub orders_database: Option<PathBuf>,
}

/// `tollhouse restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// The backup and the databases.
    #[command(flatten)]
    pub databases: Databases,
    /// Accept a backup without a valid signature of this platform's secret. Its writer could have added API keys: check
    /// it before.
    #[arg(long)]
    pub accept_unsigned: bool,
    /// Restore this backup although a newer one exists.
    #[arg(long)]
    pub older: bool,
    /// Do not repeat the removals, and the revocations of API keys, made since the backup; list them.
    #[arg(long)]
    pub bring_back: bool,
}

pub(super) async fn backup(common: &Common, directory: &Directory, options: &Databases) -> anyhow::Result<()> {
    // First, so that all files below are private.
    chassis::process::prepare()?;
    let target = &options.directory;
    std::fs::create_dir_all(target).with_context(|| format!("making {}", target.display()))?;
    anyhow::ensure!(
        !target.join(MANIFEST).exists(),
        "{} already contains a backup; choose another directory",
        target.display()
    );
    let key = signing_key(directory)?;
    let made_at = SystemClock::new().now_seconds().0;
    let mut databases = BTreeMap::new();
    for Part { name, file, copy, .. } in parts(directory, options) {
        anyhow::ensure!(
            file.exists(),
            "there is no database {}; name it with --{name}-database. Back up PostgreSQL with pg_dump: see \
             docs/operator/backup.md",
            file.display()
        );
        let contents = backup::copy(&file, &copy).await?;
        databases.insert(name, as_json(&contents, backup::schema(&copy).await?));
    }
    let manifest = json!({ "version": env!("CARGO_PKG_VERSION"), "made_at": made_at, "databases": databases });
    let text = format!("{manifest:#}\n");
    write_private(&target.join(SIGNATURE), key.derive(&text).to_token().as_bytes())?;
    write_private(&target.join(MANIFEST), text.as_bytes())?;
    write_private(&directory.path(NEWEST), made_at.to_string().as_bytes())?;
    answer(common, &manifest, |manifest| format!("{}Checked and complete: {}", contents(manifest), target.display()));
    Ok(())
}

pub(super) async fn restore(common: &Common, directory: &Directory, restore: &Restore) -> anyhow::Result<()> {
    chassis::process::prepare()?;
    let from = &restore.databases.directory;
    let key = signing_key(directory);
    let (text, is_signed) = manifest(from, key.as_ref().ok())?;
    if !restore.accept_unsigned {
        key?;
        anyhow::ensure!(
            is_signed,
            "{} does not match its signature: it was changed, or another platform secret signed it. If you are sure \
             that it was not changed, restore it with --accept-unsigned",
            from.join(MANIFEST).display()
        );
    }
    let manifest: Value = serde_json::from_str(&text).with_context(|| format!("reading {}", from.display()))?;
    let made_at = made_at(&manifest).with_context(|| format!("{} has no creation time", from.display()))?;
    if !restore.older {
        is_newest(directory, from, made_at)?;
    }
    let parts = parts(directory, &restore.databases);
    let promised = |part: &Part| manifest.pointer(&format!("/databases/{}", part.name)).unwrap_or(&Value::Null);
    // All checks come before the first change.
    let _lock = directory.take()?;
    for part in &parts {
        part.may_be_restored(promised(part)).await?;
    }
    let files = parts.each_ref().map(|part| (beside(&part.file, ".restored"), part.file.clone()));
    let revocations = directory.path(REVOCATIONS);
    let prepared = prepare(&parts, &files, &promised, (revocations.as_path(), restore.bring_back)).await;
    let report = prepared.inspect_err(|_| files.iter().for_each(|(fresh, _)| remove(fresh)))?;
    let kept = backup::replace(&files).context(
        "the restore is incomplete, and no service opens the databases: correct the error below (free space?), and \
         restore again",
    )?;
    let done = json!({ "backup": manifest, "kept": kept, "report": report });
    answer(common, &done, |_| {
        let kept: String =
            kept.iter().map(|file| format!("The previous database is kept as {}.\n", file.display())).collect();
        format!(
            "{}Restored the backup of {}.\n{kept}{}",
            contents(&manifest),
            moment(made_at).unwrap_or_default(),
            finish::in_words(&report)
        )
    });
    Ok(())
}

/// Prepares the databases beside the current ones.
async fn prepare<'a>(
    parts: &[Part; 2],
    files: &[(PathBuf, PathBuf); 2],
    promised: &impl Fn(&Part) -> &'a Value,
    (revocations, bring_back): (&Path, bool),
) -> anyhow::Result<Report> {
    for (part, (fresh, place)) in parts.iter().zip(files) {
        remove(fresh);
        if let Some(above) = place.parent() {
            std::fs::create_dir_all(above).with_context(|| format!("making {}", above.display()))?;
        }
        std::fs::copy(&part.copy, fresh).with_context(|| format!("copying to {}", fresh.display()))?;
        // Verified again, because the backup could have changed between the check and the copy.
        check_digest(fresh, promised(part))?;
    }
    let [(domains, lost), (orders, _)] = files;
    let lost = match backup::examine(lost).await {
        Ok(_) => Ok(lost.clone().into()),
        Err(why) => Err(why),
    };
    orders_service::store::finish_restore(&orders.clone().into()).await?;
    let clock = Arc::new(SystemClock::new());
    let report =
        domains_service::finish_restore(&domains.clone().into(), lost, Some(revocations), bring_back, clock).await?;
    for (fresh, _) in files {
        backup::is_unused(fresh).await?;
        std::fs::File::open(fresh)?.sync_all()?;
    }
    Ok(report)
}

impl Part {
    /// Checks that a copy matches the manifest, and that the current database may be replaced.
    async fn may_be_restored(&self, promised: &Value) -> anyhow::Result<()> {
        let copy = &self.copy;
        anyhow::ensure!(copy.exists(), "{} is missing", copy.display());
        let schema = promised.get("schema").and_then(Value::as_i64).unwrap_or(i64::MAX);
        anyhow::ensure!(
            schema <= self.newest_schema,
            "{} has a schema (version {schema}) that is newer than this program (version {}); restore it with the \
             version that made it, or a newer one",
            copy.display(),
            self.newest_schema
        );
        // First, so that the contents of an altered file are never read.
        check_digest(copy, promised)?;
        anyhow::ensure!(
            as_json(&backup::examine(copy).await?, schema) == *promised,
            "{} differs from the backup: its rows do not match the manifest",
            copy.display()
        );
        if self.file.exists() { backup::is_unused(&self.file).await } else { Ok(()) }
    }
}

/// The key that signs backups. A missing secret is not created here: a backup signed with it could not be verified
/// elsewhere.
fn signing_key(directory: &Directory) -> anyhow::Result<Secret> {
    let path = directory.path("secrets/platform.key");
    let secret = Secret::load(&path).with_context(|| {
        format!(
            "the platform's secret signs backups; name the directory that has it ({}) with --data-dir",
            path.display()
        )
    })?;
    Ok(secret.derive("backup manifest"))
}

/// The manifest of a backup, and whether this platform signed it.
fn manifest(backup: &Path, key: Option<&Secret>) -> anyhow::Result<(String, bool)> {
    let path = backup.join(MANIFEST);
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("{} is not a complete backup", backup.display()))?;
    let signature = std::fs::read_to_string(backup.join(SIGNATURE)).unwrap_or_default();
    let is_signed = key.is_some_and(|key| key.derive(&text).matches_token(signature.trim()));
    Ok((text, is_signed))
}

fn made_at(manifest: &Value) -> Option<i64> {
    manifest.get("made_at")?.as_i64()
}

/// Checks that no newer backup is recorded in the data directory or stored beside this one.
fn is_newest(directory: &Directory, backup: &Path, made_at: i64) -> anyhow::Result<()> {
    let noted = std::fs::read_to_string(directory.path(NEWEST)).ok().and_then(|text| text.trim().parse().ok());
    let mut newest: Option<(i64, String)> = noted.map(|at| (at, "the newest backup of this platform".to_owned()));
    let folder = std::path::absolute(backup)?;
    let beside = folder.parent().and_then(|above| std::fs::read_dir(above).ok()).into_iter().flatten();
    let key = signing_key(directory).ok();
    for other in beside.take(BESIDE_MAX).filter_map(|entry| Some(entry.ok()?.path())) {
        let Ok((text, true)) = manifest(&other, key.as_ref()) else { continue };
        let at = serde_json::from_str(&text).ok().as_ref().and_then(self::made_at);
        newest = newest.max(at.map(|at| (at, other.display().to_string())));
    }
    if let Some((at, which)) = newest.filter(|(at, _)| *at > made_at) {
        let [made_at, at] = [made_at, at].map(|at| moment(at).unwrap_or_default());
        anyhow::bail!(
            "{} was made at {made_at}, and there is a newer backup, of {at} ({which}). Restore the newer one, or this \
             one with --older: keys and names that were revoked or removed after {made_at} may then be valid again",
            backup.display()
        );
    }
    Ok(())
}

/// Checks the digest of a file against the manifest.
fn check_digest(file: &Path, promised: &Value) -> anyhow::Result<()> {
    let (bytes, sha256) = backup::digest(file)?;
    anyhow::ensure!(
        promised.get("sha256").and_then(Value::as_str) == Some(&*sha256)
            && promised.get("bytes").and_then(Value::as_u64) == Some(bytes),
        "{} differs from the backup: its digest does not match the manifest",
        file.display()
    );
    Ok(())
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    PathBuf::from(format!("{}{ending}", path.display()))
}

/// Removes the files of a prepared database that is not used.
fn remove(fresh: &Path) {
    for ending in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(beside(fresh, ending));
    }
}

fn as_json(contents: &Contents, schema: i64) -> Value {
    json!({ "bytes": contents.bytes, "sha256": contents.sha256, "rows": contents.rows, "schema": schema })
}

/// The contents of a backup, as a table.
fn contents(manifest: &Value) -> String {
    let databases = manifest.get("databases").and_then(Value::as_object).into_iter().flatten();
    let rows: Vec<Value> = databases
        .map(|(name, contents)| {
            let rows = contents.get("rows").and_then(Value::as_object).into_iter().flatten();
            let rows: u64 = rows.filter_map(|(_, count)| count.as_u64()).sum();
            json!({ "name": name, "bytes": contents.get("bytes"), "rows": rows, "sha256": contents.get("sha256") })
        })
        .collect();
    let columns = [("DATABASE", "/name"), ("BYTES", "/bytes"), ("ROWS", "/rows"), ("SHA-256", "/sha256")];
    format!("{}\n", table(&Value::Array(rows), &columns))
}
