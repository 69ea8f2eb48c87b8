//! `tollhouse backup` and `tollhouse restore`: the databases, copied while the platform runs, checked, and put back.
//!
//! A backup is a directory: one file per database, and `backup.json` with their digests and rows, written last: without
//! it a backup is not complete. Secrets are not in it; with the sealing secret a backup of the domains would be
//! everybody's private keys.
//!
//! A database that was restored knows less than it did. Gateways know more, and refuse whatever is older than what they
//! have. So the restored database continues above every number that was ever given out, and has no log from before:
//! each gateway is sent everything anew. Entity tags of orders from before the restore do not match any more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chassis::backup::{self, Contents};
use chassis::clock::{Clock as _, SystemClock};
use serde_json::{Value, json};

use crate::arguments::{Common, Databases};
use crate::directory::Directory;
use crate::output::{answer, table};

/// What says that a backup is complete.
const MANIFEST: &str = "backup.json";

/// Above every revision that the lost database can have given out: revisions begin at the millisecond of the first
/// start, so they are beyond the clock only by changes that came faster than one a millisecond, over all the time.
const REVISIONS_AHEAD: i64 = 1_000_000_000;

/// The databases with their places under the data directory.
const KNOWN: [(&str, &str); 2] = [("domains", "domains/domains.sqlite"), ("orders", "orders/orders.sqlite")];

fn place(directory: &Directory, options: &Databases, name: &str, usual: &str) -> PathBuf {
    let named = if name == "domains" { &options.domains_database } else { &options.orders_database };
    named.clone().unwrap_or_else(|| directory.path(usual))
}

pub(super) async fn backup(common: &Common, directory: &Directory, options: &Databases) -> anyhow::Result<()> {
    // First, so that everything below is made private.
    chassis::process::prepare()?;
    let target = &options.directory;
    std::fs::create_dir_all(target).with_context(|| format!("making {}", target.display()))?;
    anyhow::ensure!(
        !target.join(MANIFEST).exists(),
        "{} holds a backup already; choose another directory",
        target.display()
    );
    let mut databases = BTreeMap::new();
    for (name, usual) in KNOWN {
        let from = place(directory, options, name, usual);
        anyhow::ensure!(
            from.exists(),
            "there is no database {}; name it with --{name}-database, or use pg_dump where it is PostgreSQL's",
            from.display()
        );
        let contents = backup::copy(&from, &target.join(format!("{name}.sqlite"))).await?;
        databases.insert(name, as_json(&contents));
    }
    let now = SystemClock::new().now_seconds();
    let manifest = json!({ "version": env!("CARGO_PKG_VERSION"), "made_at": now, "databases": databases });
    chassis::secret::write_private(&target.join(MANIFEST), format!("{manifest:#}\n").as_bytes())?;
    answer(common, &manifest, |manifest| readable(manifest, &format!("Checked and complete: {}", target.display())));
    Ok(())
}

pub(super) async fn restore(common: &Common, directory: &Directory, options: &Databases) -> anyhow::Result<()> {
    chassis::process::prepare()?;
    let from = &options.directory;
    let path = from.join(MANIFEST);
    let text = std::fs::read(&path).with_context(|| format!("{} is no complete backup", from.display()))?;
    let manifest: Value = serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))?;
    // Everything is looked at before anything is touched.
    let _lock = directory.take()?;
    for (name, usual) in KNOWN {
        let file = from.join(format!("{name}.sqlite"));
        let found = as_json(&backup::examine(&file).await?);
        let promised = manifest.pointer(&format!("/databases/{name}")).unwrap_or(&Value::Null);
        anyhow::ensure!(found == *promised, "{} is not what was backed up: its digest or rows differ", file.display());
        let target = place(directory, options, name, usual);
        if target.exists() {
            backup::is_unused(&target).await?;
        }
    }
    for (name, usual) in KNOWN {
        put_back(&from.join(format!("{name}.sqlite")), &place(directory, options, name, usual), name).await?;
    }
    answer(common, &manifest, |manifest| {
        let words = "Restored. What was there is kept beside it, as NAME.before-restore. Start the platform; gateways that\n\
                     went on running are sent everything anew.";
        readable(manifest, words)
    });
    Ok(())
}

/// Puts one database in its place; what was there is moved aside.
async fn put_back(from: &Path, target: &Path, name: &str) -> anyhow::Result<()> {
    if let Some(above) = target.parent() {
        std::fs::create_dir_all(above).with_context(|| format!("making {}", above.display()))?;
    }
    let fresh = beside(target, "restoring");
    std::fs::copy(from, &fresh).with_context(|| format!("copying {} to {}", from.display(), fresh.display()))?;
    let statements = if name == "domains" {
        let newest = "SELECT current FROM revision_counter WHERE id = 1";
        let kept = backup::number(&fresh, newest).await?;
        // The lost database may still be readable; what it says is better than the clock.
        let lost = if target.exists() { backup::number(target, newest).await.unwrap_or(0) } else { 0 };
        let revision = kept.max(lost).max(SystemClock::new().now().0) + REVISIONS_AHEAD;
        vec![
            "DELETE FROM changes".to_owned(),
            format!("UPDATE revision_counter SET current = {revision}, oldest = {revision} WHERE id = 1"),
        ]
    } else {
        vec!["DELETE FROM installation".to_owned()]
    };
    backup::amend(&fresh, &statements).await?;
    std::fs::File::open(&fresh)?.sync_all()?;
    if target.exists() {
        let aside = beside(target, "before-restore");
        std::fs::rename(target, &aside).with_context(|| format!("moving {} aside", target.display()))?;
    }
    // A log of the old file must not be taken for one of the new.
    for ending in ["wal", "shm"] {
        let stray = PathBuf::from(format!("{}-{ending}", target.display()));
        if stray.exists() {
            std::fs::remove_file(&stray).with_context(|| format!("removing {}", stray.display()))?;
        }
    }
    std::fs::rename(&fresh, target).with_context(|| format!("putting {} in its place", target.display()))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    PathBuf::from(format!("{}.{ending}", path.display()))
}

fn as_json(contents: &Contents) -> Value {
    json!({ "bytes": contents.bytes, "sha256": contents.sha256, "rows": contents.rows })
}

fn readable(manifest: &Value, words: &str) -> String {
    let databases = manifest.get("databases").and_then(Value::as_object).into_iter().flatten();
    let rows: Vec<Value> = databases
        .map(|(name, contents)| {
            let rows = contents.get("rows").and_then(Value::as_object).into_iter().flatten();
            let rows: u64 = rows.filter_map(|(_, count)| count.as_u64()).sum();
            json!({ "name": name, "bytes": contents.get("bytes"), "rows": rows, "sha256": contents.get("sha256") })
        })
        .collect();
    let columns = [("DATABASE", "/name"), ("BYTES", "/bytes"), ("ROWS", "/rows"), ("SHA-256", "/sha256")];
    format!("{}\n{words}", table(&Value::Array(rows), &columns))
}
