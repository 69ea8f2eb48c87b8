//! Checks that a database belongs to this program: new, or made by a released version that is not newer.

use sqlx::migrate::{Migrate, Migrator};

/// The table of applied migrations.
const MIGRATIONS: &str = "_sqlx_migrations";

/// What to do about a database of another program, or of an unreleased version.
const NOT_OURS: &str = "it was made by another program or by a version from before 0.1.0: to carry its projects and orders \
    over, run `tollhouse project list` and, for each project, `tollhouse orders export FILE --project NAME` with the version \
    that made it, then start this version with an empty database, and run `tollhouse project create NAME` and `tollhouse \
    orders import FILE --project NAME`; keys and domains are made anew";

/// Refuses a database with tables whose first migration is not ours, or with unknown migrations. `tables` were read
/// before: a replica that starts concurrently makes all of them together with the record of their migration.
pub(crate) async fn must_be_ours(
    connection: &mut impl Migrate,
    tables: Vec<String>,
    migrator: &Migrator,
) -> anyhow::Result<()> {
    let Some(first) = migrator.iter().next() else { return Ok(()) };
    let (noted, tables): (Vec<_>, Vec<_>) = tables.into_iter().partition(|table| table == MIGRATIONS);
    let applied = if noted.is_empty() { Vec::new() } else { connection.list_applied_migrations(MIGRATIONS).await? };
    let is_ours = applied.iter().any(|one| one.version == first.version && one.checksum == first.checksum);
    anyhow::ensure!(tables.is_empty() || is_ours, NOT_OURS);
    if let Some(newer) = applied.iter().find(|one| !migrator.version_exists(one.version)) {
        anyhow::bail!(
            "its schema (version {}) is newer than this program: start the version that made it, or restore a backup from \
             before the upgrade",
            newer.version
        );
    }
    Ok(())
}
