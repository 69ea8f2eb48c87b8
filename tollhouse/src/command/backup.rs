//! `tollhouse backup` and `tollhouse restore`: the databases, copied while the platform runs, checked, and put back.
//!
//! A backup is a directory: one file per database, and `backup.json` with their digests and rows, written last: without
//! it a backup is not complete. Secrets are not in it; with the sealing secret a backup of the domains would be
//! everybody's private keys. What this means for a file and for a server is in `kept`.
//!
//! Who may write to a backup could put in a key of their own, or SQL. So the platform's secret signs `backup.json`, which
//! has the digest of everything, and nothing is opened before it is known to be what was signed.
//!
//! A database that was restored knows less than it did. Gateways know more, and refuse whatever is older than what they
//! have. So the restored database continues above every number that was ever given out, and has no log from before:
//! each gateway is sent everything anew. Entity tags of orders from before the restore do not match any more.

mod kept;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use chassis::clock::{Clock as _, SystemClock};
use chassis::secret::Secret;
use serde_json::{Value, json};

use crate::arguments::{Common, Databases, Restore};
use crate::directory::Directory;
use crate::output::{answer, table};
use kept::{Aside, Kept, Name};

/// What says that a backup is complete.
const MANIFEST: &str = "backup.json";

/// What says that it is ours.
const SIGNATURE: &str = "backup.json.sig";

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
    let key = signing_key(directory)?;
    let mut databases = BTreeMap::new();
    for &name in Name::ALL {
        let database = Kept::of(directory, options, name)?;
        let copied = database.copy(&database.copy_in(target, name), name).await?;
        databases.insert(name.as_str(), copied);
    }
    let now = SystemClock::new().now_seconds();
    let manifest = json!({ "version": env!("CARGO_PKG_VERSION"), "made_at": now, "databases": databases });
    let text = format!("{manifest:#}\n");
    chassis::secret::write_private(&target.join(SIGNATURE), key.derive(&text).to_token().as_bytes())?;
    chassis::secret::write_private(&target.join(MANIFEST), text.as_bytes())?;
    answer(common, &manifest, |manifest| readable(manifest, &format!("Checked and complete: {}", target.display())));
    Ok(())
}

pub(super) async fn restore(common: &Common, directory: &Directory, restore: &Restore) -> anyhow::Result<()> {
    chassis::process::prepare()?;
    let options = &restore.databases;
    let from = &options.directory;
    let path = from.join(MANIFEST);
    let text = std::fs::read_to_string(&path).with_context(|| format!("{} is no complete backup", from.display()))?;
    if !restore.accept_unsigned {
        is_ours(from, &text, &signing_key(directory)?)?;
    }
    let manifest: Value = serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    let promised = |name: Name| manifest.pointer(&format!("/databases/{}", name.as_str())).unwrap_or(&Value::Null);
    let database = |&name| Kept::of(directory, options, name).map(|kept| (name, kept.copy_in(from, name), kept));
    let databases: Vec<_> = Name::ALL.iter().map(database).collect();
    // Everything is looked at before anything is touched.
    let _lock = directory.take()?;
    let databases = databases.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    for (name, copy, database) in &databases {
        database.may_be_restored(copy, promised(*name), *name).await?;
    }
    let mut done: Vec<(&Kept, Option<Aside>)> = Vec::new();
    for (name, copy, database) in &databases {
        match database.put_back(copy, promised(*name), *name, directory).await {
            Ok(aside) => done.push((database, aside)),
            Err(error) => return Err(undone(done, error).await),
        }
    }
    answer(common, &manifest, |manifest| {
        let kept = done.iter().filter_map(|(_, aside)| aside.as_ref());
        let kept: Vec<String> = kept.map(|aside| format!("What was there is kept as {aside}.\n")).collect();
        let words = format!(
            "Restored. {}Start the platform; gateways that went on running are sent everything anew.",
            kept.concat()
        );
        readable(manifest, &words)
    });
    Ok(())
}

/// Both databases or neither: what was put back already is taken back. The reason, and how that ended.
async fn undone(done: Vec<(&Kept, Option<Aside>)>, mut error: anyhow::Error) -> anyhow::Error {
    for (database, aside) in done.into_iter().rev() {
        if let Err(also) = database.take_back(aside).await {
            error = error.context(format!("{also:#}; what was restored before it is in place, so restore again"));
        }
    }
    error
}

/// The key that signs backups. It is not made here: a backup under a secret that nobody else has could not be restored.
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

/// Makes sure that this platform wrote the manifest.
fn is_ours(from: &Path, manifest: &str, key: &Secret) -> anyhow::Result<()> {
    let signature = std::fs::read_to_string(from.join(SIGNATURE)).unwrap_or_default();
    anyhow::ensure!(
        key.derive(manifest).matches_token(signature.trim()),
        "{} is not what this platform signed: it was changed, or made under another platform secret or by a version that \
         did not sign; if you know where it was since it was made, restore it with --accept-unsigned",
        from.join(MANIFEST).display()
    );
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
