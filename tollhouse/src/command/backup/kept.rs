//! Where a database is, and what copying it and putting it back means there: a file of SQLite, or a database of a
//! PostgreSQL server.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chassis::backup::{self, Contents, ServerDatabase};
use chassis::clock::{Clock as _, SystemClock};
use chassis::secret::Secret;
use serde_json::{Value, json};

use crate::arguments::Databases;
use crate::directory::Directory;

/// Above every revision that the lost database can have given out: revisions begin at the millisecond of the first
/// start, so they are beyond the clock only by changes that came faster than one a millisecond, over all the time.
const REVISIONS_AHEAD: i64 = 1_000_000_000;

/// What a restored database of the domains at a PostgreSQL server is told before it is used: to count on above every revision
/// it ever gave out, that it has no log from before, and that it replaces the databases of before.
const RENEW_DOMAINS: [&str; 4] = [
    "DELETE FROM changes",
    "UPDATE revision_counter SET current = greatest(current, extract(epoch FROM now()) * 1000)::bigint + 1000000000",
    "UPDATE revision_counter SET oldest = current",
    domains_service::REPLACE_EARLIER,
];

/// What that of the orders is told: that it is another one, so that no entity tag from before matches. docs/operating.md has
/// the same, for databases that are put back with other tools.
const RENEW_ORDERS: [&str; 1] = ["DELETE FROM installation"];

contract::words! {
    /// One of the two databases.
    pub(super) enum Name {
        Domains = "domains",
        Orders = "orders",
    }
}

impl Name {
    /// The newest version of its schema that this program knows.
    fn newest_schema(self) -> i64 {
        match self {
            Self::Domains => domains_service::newest_schema(),
            Self::Orders => orders_service::store::newest_schema(),
        }
    }
}

/// Where a database is.
pub(super) enum Kept {
    File(PathBuf),
    Server(Box<ServerDatabase>),
}

impl Kept {
    pub(super) fn of(directory: &Directory, options: &Databases, name: Name) -> anyhow::Result<Self> {
        let (file, url) = match name {
            Name::Domains => (&options.domains_database, &options.domains_url_file),
            Name::Orders => (&options.orders_database, &options.orders_url_file),
        };
        if let Some(path) = url {
            let url = Secret::load_with(path, Secret::parse_password)?;
            let database = ServerDatabase::new(&url).with_context(|| format!("reading {}", path.display()))?;
            return Ok(Self::Server(Box::new(database)));
        }
        let usual = || directory.path(&format!("{0}/{0}.sqlite", name.as_str()));
        Ok(Self::File(file.clone().unwrap_or_else(usual)))
    }

    /// The file of its copy in a backup.
    pub(super) fn copy_in(&self, backup: &Path, name: Name) -> PathBuf {
        backup.join(match self {
            Self::File(_) => format!("{}.sqlite", name.as_str()),
            Self::Server(_) => format!("{}.dump", name.as_str()),
        })
    }

    /// Copies the database while it is in use; what the manifest says of the copy.
    pub(super) async fn copy(&self, to: &Path, name: Name) -> anyhow::Result<Value> {
        let (contents, schema) = match self {
            Self::File(path) => {
                anyhow::ensure!(
                    path.exists(),
                    "there is no database {0}; name it with --{1}-database, or with --{1}-url-file where it is \
                     PostgreSQL's",
                    path.display(),
                    name.as_str()
                );
                (backup::copy(path, to).await?, backup::schema(to).await?)
            }
            // A schema that changes between the two questions is a service that starts: it has not begun to write.
            Self::Server(database) => (database.copy(to).await?, database.schema().await?),
        };
        Ok(as_json(&contents, schema))
    }

    /// Makes sure that a copy is what was backed up, and that what it would replace may be replaced.
    pub(super) async fn may_be_restored(&self, from: &Path, promised: &Value, name: Name) -> anyhow::Result<()> {
        anyhow::ensure!(
            from.exists(),
            "there is no {}; a backup goes back to where it came from: a file, or with --{}-url-file PostgreSQL",
            from.display(),
            name.as_str(),
        );
        let schema = promised.get("schema").and_then(Value::as_i64).unwrap_or(i64::MAX);
        anyhow::ensure!(
            schema <= name.newest_schema(),
            "{} has a schema (version {schema}) that is newer than this program (version {}); restore it with the \
             version that made it, or a newer one",
            from.display(),
            name.newest_schema()
        );
        // First: nothing reads the contents of a file that is not the one that was backed up.
        is_what_was_backed_up(from, promised)?;
        let found = match self {
            Self::File(_) => backup::examine(from).await?,
            Self::Server(_) => {
                let (bytes, sha256) = backup::examine_dump(from).await?;
                // Rows are counted again when they are in a database.
                Contents { bytes, sha256, rows: rows_in(promised) }
            }
        };
        anyhow::ensure!(
            as_json(&found, schema) == *promised,
            "{} is not what was backed up: its rows differ",
            from.display()
        );
        match self {
            Self::File(path) if path.exists() => backup::is_unused(path).await,
            Self::File(_) => Ok(()),
            Self::Server(database) => database.may_be_replaced().await,
        }
    }

    /// Puts a copy in the database's place. Where what was there is now. When it fails, everything is as it was.
    pub(super) async fn put_back(
        &self,
        from: &Path,
        promised: &Value,
        name: Name,
        directory: &Directory,
    ) -> anyhow::Result<Option<Aside>> {
        match self {
            Self::File(path) => put_back_file(from, path, promised, name).await.map(|aside| aside.map(Aside::File)),
            Self::Server(database) => {
                // What PostgreSQL's tool reads is in our hands before it is looked at for the last time.
                let private = directory.path(&format!("{}.dump.restoring", name.as_str()));
                let restored = put_back_dump(from, &private, database, promised, name).await;
                let _ = std::fs::remove_file(&private);
                restored
            }
        }
    }

    /// Makes what [`Kept::put_back`] did undone.
    pub(super) async fn take_back(&self, aside: Option<Aside>) -> anyhow::Result<()> {
        match (self, aside) {
            (Self::Server(database), Some(Aside::Schema { name, .. })) => database.take_back(Some(&name)).await,
            (Self::Server(database), _) => database.take_back(None).await,
            (Self::File(path), Some(Aside::File(aside))) => {
                std::fs::rename(&aside, path).with_context(|| format!("putting {} back", aside.display()))
            }
            (Self::File(path), _) => std::fs::remove_file(path).with_context(|| format!("removing {}", path.display())),
        }
    }
}

/// Where a restore put what was there.
pub(super) enum Aside {
    File(PathBuf),
    Schema { name: String, place: String },
}

impl std::fmt::Display for Aside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Schema { name, place } => write!(f, "the schema {name} of {place}"),
        }
    }
}

/// Puts a dump into its database; what was there is moved aside.
async fn put_back_dump(
    from: &Path,
    private: &Path,
    database: &ServerDatabase,
    promised: &Value,
    name: Name,
) -> anyhow::Result<Option<Aside>> {
    std::fs::copy(from, private).with_context(|| format!("copying {} to {}", from.display(), private.display()))?;
    is_what_was_backed_up(private, promised)?;
    let aside = database.set_aside().await?;
    let mut statements = match name {
        Name::Domains => RENEW_DOMAINS.map(str::to_owned).to_vec(),
        Name::Orders => RENEW_ORDERS.map(str::to_owned).to_vec(),
    };
    if let (Name::Domains, Some(aside)) = (name, &aside) {
        // What the lost database says is better than the clock.
        let lost = database.number_aside(aside, "current", "revision_counter").await.unwrap_or(0);
        statements.insert(0, format!("UPDATE revision_counter SET current = greatest(current, {lost})"));
    }
    if let Err(error) = database.put_back(private, &rows_in(promised), &statements).await {
        return Err(match database.take_back(aside.as_deref()).await {
            Ok(()) => error.context("nothing was changed"),
            Err(also) => error.context(format!("{} is not ready for use: {also:#}", database.place())),
        });
    }
    Ok(aside.map(|name| Aside::Schema { name, place: database.place() }))
}

/// Puts a file in its place; what was there is moved aside.
async fn put_back_file(from: &Path, target: &Path, promised: &Value, name: Name) -> anyhow::Result<Option<PathBuf>> {
    if let Some(above) = target.parent() {
        std::fs::create_dir_all(above).with_context(|| format!("making {}", above.display()))?;
    }
    let fresh = beside(target, "restoring");
    std::fs::copy(from, &fresh).with_context(|| format!("copying {} to {}", from.display(), fresh.display()))?;
    // Again, of the copy: between the two looks somebody may have written to the backup.
    is_what_was_backed_up(&fresh, promised)?;
    let statements = match name {
        Name::Domains => {
            let newest = "SELECT current FROM revision_counter WHERE id = 1";
            let kept = backup::number(&fresh, newest).await?;
            // The lost database may still be readable; what it says is better than the clock.
            let lost = if target.exists() { backup::number(target, newest).await.unwrap_or(0) } else { 0 };
            let revision = kept.max(lost).max(SystemClock::new().now().0) + REVISIONS_AHEAD;
            vec![
                "DELETE FROM changes".to_owned(),
                format!("UPDATE revision_counter SET current = {revision}, oldest = {revision} WHERE id = 1"),
                domains_service::REPLACE_EARLIER.to_owned(),
            ]
        }
        Name::Orders => RENEW_ORDERS.map(str::to_owned).to_vec(),
    };
    backup::amend(&fresh, &statements).await?;
    std::fs::File::open(&fresh)?.sync_all()?;
    let aside = if target.exists() { Some(move_aside(target)?) } else { None };
    // A log of the old file must not be taken for one of the new.
    for ending in ["wal", "shm"] {
        let stray = PathBuf::from(format!("{}-{ending}", target.display()));
        if stray.exists() {
            std::fs::remove_file(&stray).with_context(|| format!("removing {}", stray.display()))?;
        }
    }
    std::fs::rename(&fresh, target).with_context(|| format!("putting {} in its place", target.display()))?;
    if let Some(above) = target.parent() {
        std::fs::File::open(above).and_then(|folder| folder.sync_all()).context("writing the directory to the disk")?;
    }
    Ok(aside)
}

/// Gives a file a second name that nothing has yet: what an earlier restore put aside stays. The file keeps its first name
/// until another takes it, so there is never none.
fn move_aside(target: &Path) -> anyhow::Result<PathBuf> {
    let names =
        std::iter::once("before-restore".to_owned()).chain((2..).map(|count| format!("before-restore-{count}")));
    for aside in names.map(|name| beside(target, &name)) {
        match std::fs::hard_link(target, &aside) {
            Ok(()) => return Ok(aside),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            // A file system without hard links.
            Err(_) if !aside.exists() => {
                std::fs::rename(target, &aside).with_context(|| format!("moving {} aside", target.display()))?;
                return Ok(aside);
            }
            Err(_) => {}
        }
    }
    anyhow::bail!("no name is left for {}", target.display())
}

/// Makes sure that a file has the bytes that the manifest says.
fn is_what_was_backed_up(file: &Path, promised: &Value) -> anyhow::Result<()> {
    let (bytes, sha256) = backup::digest(file)?;
    anyhow::ensure!(
        promised.get("sha256").and_then(Value::as_str) == Some(&*sha256)
            && promised.get("bytes").and_then(Value::as_u64) == Some(bytes),
        "{} is not what was backed up: its digest differs",
        file.display()
    );
    Ok(())
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    PathBuf::from(format!("{}.{ending}", path.display()))
}

fn as_json(contents: &Contents, schema: i64) -> Value {
    json!({ "bytes": contents.bytes, "sha256": contents.sha256, "rows": contents.rows, "schema": schema })
}

fn rows_in(promised: &Value) -> std::collections::BTreeMap<String, u64> {
    let rows = promised.get("rows").and_then(Value::as_object).into_iter().flatten();
    rows.filter_map(|(table, count)| Some((table.clone(), count.as_u64()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_earlier_restores_put_aside_stays() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("orders.sqlite");
        let mut kept = Vec::new();
        for contents in ["first", "second", "third"] {
            let _ = std::fs::remove_file(&file);
            std::fs::write(&file, contents).unwrap();
            kept.push((move_aside(&file).unwrap(), contents));
        }
        for (aside, contents) in kept {
            assert_eq!(std::fs::read_to_string(aside).unwrap(), contents);
        }
    }

    #[test]
    fn operators_are_told_the_statement_that_a_restore_carries_out_for_orders() {
        let page = include_str!("../../../../docs/operating.md");
        for statement in RENEW_ORDERS {
            assert!(page.contains(&format!("    {statement};\n")), "docs/operating.md lacks: {statement};");
        }
    }
}
