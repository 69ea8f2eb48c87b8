//! `tollhouse backup` and `tollhouse restore`: the databases, copied while the platform runs, checked, and put back.
//!
//! A backup is a directory: one file per database, and `backup.json` with their digests and rows, written last: without
//! it a backup is not complete. Secrets are not in it; with the sealing secret a backup of the domains would be
//! everybody's private keys. What this means for a file and for a server is in `kept`.
//!
//! A database that was restored knows less than it did. Gateways know more, and refuse whatever is older than what they
//! have. So the restored database continues above every number that was ever given out, and has no log from before:
//! each gateway is sent everything anew. Entity tags of orders from before the restore do not match any more.

mod kept;

use std::collections::BTreeMap;

use anyhow::Context as _;
use chassis::clock::{Clock as _, SystemClock};
use serde_json::{Value, json};

use crate::arguments::{Common, Databases};
use crate::directory::Directory;
use crate::output::{answer, table};
use kept::{Kept, Name};

/// What says that a backup is complete.
const MANIFEST: &str = "backup.json";

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
    for name in Name::ALL {
        let database = Kept::of(directory, options, name)?;
        let copied = database.copy(&database.copy_in(target, name), name).await?;
        databases.insert(name.as_str(), copied);
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
    let promised = |name: Name| manifest.pointer(&format!("/databases/{}", name.as_str())).unwrap_or(&Value::Null);
    let databases =
        Name::ALL.map(|name| Kept::of(directory, options, name).map(|kept| (name, kept.copy_in(from, name), kept)));
    // Everything is looked at before anything is touched.
    let _lock = directory.take()?;
    let databases = databases.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    for (name, copy, database) in &databases {
        database.may_be_restored(copy, promised(*name), *name).await?;
    }
    for (name, copy, database) in &databases {
        database.put_back(copy, promised(*name), *name).await?;
    }
    answer(common, &manifest, |manifest| {
        let words = "Restored. A file that was there is kept beside it, as NAME.before-restore. Start the platform; gateways\n\
                     that went on running are sent everything anew.";
        readable(manifest, words)
    });
    Ok(())
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
