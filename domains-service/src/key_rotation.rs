//! Rotation of the sealing secret while all processes run.
//!
//! A service may have several secrets: it seals with the newest and opens with all. A background task seals older rows
//! again with the newest secret, in small batches. Each batch commits by itself, so a crash loses nothing and the next
//! run continues. Resealed certificates are changes that gateways must load: a batch waits until the live gateways have
//! applied the one before, so that a million certificates delay no other change. Replicas may do this at the same time.
//!
//! An operator may remove a secret when no row needs it any more. Before that, the service refuses to start and says
//! what to do, except when only one row needs the secret. So an operator who removes a secret here first sees the
//! mistake before any gateway does. For a secret that is lost for good, [`drop_sealed_with`] drops the rows that only
//! it opens. While the database is away, all of this waits and is tried again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chassis::shutdown::Shutdown;

use crate::common::Core;
use crate::gateways::Gateways;
use crate::keyring;
use crate::store::sealed::{COLUMNS, Column, Resealed, SealedCounts};
use crate::store::{Result, domains};

/// Rows that one transaction seals again.
const BATCH: i64 = 50;

/// Damaged rows that the log names, of each column.
const NAMED_MAX: i64 = 100;

/// Pause between two batches, for other writers.
const PAUSE: Duration = Duration::from_millis(50);

/// Longest wait until the gateways have applied a batch. Slower gateways are not waited for.
const APPLY_TIME_MAX: Duration = Duration::from_secs(5);

/// Interval between two searches: a replica with an older configuration may have sealed rows with an older secret.
const INTERVAL: Duration = Duration::from_mins(1);

/// Sets the gauge.
fn set_gauge(core: &Core, sealed: SealedCounts) {
    for (word, count) in SealedCounts::WORDS.iter().zip([sealed.newest, sealed.older, sealed.missing]) {
        core.metrics.sealed.with_label_values(&[word]).set(count);
    }
}

/// Counts sealed rows by the age of their secret.
pub(crate) async fn count(core: &Core) -> Result<SealedCounts> {
    Ok(SealedCounts::of(&core.sealing, &core.store.count_sealed().await?))
}

/// Checks at the start that every sealed row can be opened. With `lost`, drops the rows that cannot. A row that alone
/// names its secret is damaged; it stops nothing if other rows prove that the configured secrets are right.
///
/// # Errors
/// When a secret is missing and not `lost`, or the database does not answer.
pub(crate) async fn check(core: &Core, lost: bool) -> anyhow::Result<()> {
    let found = core.store.count_sealed().await.context("counting sealed rows")?;
    if SealedCounts::of(&core.sealing, &found).missing == 0 {
        return Ok(());
    }
    repair_names(core, &found).await.context("repairing the names of sealing secrets")?;
    let counts = core.store.count_sealed().await.context("counting sealed rows")?;
    let sealed = SealedCounts::of(&core.sealing, &counts);
    let missing = sealed.missing;
    if missing == 0 {
        return Ok(());
    }
    let names: Vec<&String> = counts.keys().filter(|name| !core.sealing.has(name)).collect();
    let is_right =
        sealed.newest + sealed.older > 0 || keyring::opens(core).await.context("reading keys of gateways")?;
    if !lost && is_right && names.iter().all(|name| is_damaged(&counts, name)) {
        for name in names {
            log_damaged(core, name).await.context("listing damaged rows")?;
        }
        return Ok(());
    }
    anyhow::ensure!(
        lost,
        "{missing} private keys or secrets of webhooks are sealed with a sealing secret that was removed (named \
         {names:?}). Put it back, in a line below the others of sealing_secret_file, restart, and remove it when \
         `tollhouse status` shows sealed_with_older 0. If it is lost for good, set sealing_secret_lost = true: the service \
         drops what it sealed and orders new certificates; webhooks need new secrets"
    );
    for name in names {
        drop_sealed_with(core, name).await.context("dropping rows sealed with the lost secret")?;
    }
    tracing::warn!(
        rows = missing,
        "dropped rows that only a lost sealing secret could decrypt; owners must rotate their webhooks' secrets"
    );
    Ok(())
}

/// Whether only damaged rows name this secret: damage does not give two rows the same name.
fn is_damaged(counts: &BTreeMap<String, i64>, name: &str) -> bool {
    name.is_empty() || counts.get(name) == Some(&1)
}

/// Repairs the name of a certificate's secret where the column is damaged and the key is not.
async fn repair_names(core: &Core, counts: &BTreeMap<String, i64>) -> Result<()> {
    for name in counts.keys().filter(|name| !core.sealing.has(name) && is_damaged(counts, name)) {
        core.store.repair_seal_names(name, BATCH).await?;
    }
    Ok(())
}

/// Logs the rows with a damaged name of a secret.
async fn log_damaged(core: &Core, name: &str) -> Result<()> {
    for (table, row) in core.store.texts_with(name, NAMED_MAX).await? {
        tracing::error!(
            table = table.as_str(),
            row,
            secret = name,
            "skipped a row that no sealing secret decrypts; other rows are used. If its secret was removed, put it back \
             into sealing_secret_file. If the row is damaged, remove and add the domain, rotate the webhook's secret, or \
             delete the row of the order or account"
        );
    }
    Ok(())
}

/// Drops the rows of a lost secret, and orders new accounts and certificates. Gateways serve the certificates in their
/// memory until then.
async fn drop_sealed_with(core: &Core, seal: &str) -> Result<()> {
    core.store.forget_sealed(seal).await?;
    let mut after = String::new();
    loop {
        let mut write = core.store.write().await?;
        let now = write.now();
        let names = core.store.sealed_names(write.connection(), seal, &after, BATCH).await?;
        let Some(last) = names.last() else { return Ok(()) };
        after = last.to_string();
        for name in names {
            let Some(project) = domains::find_claims(write.connection(), &name).await?.holder else { continue };
            let found = domains::find_domain(write.connection(), &project, &name).await?;
            if let Some(mut domain) = found.filter(|domain| domain.unreadable.is_none()) {
                domain.certificate.renew_at = Some(now.to_seconds());
                domain.due_at = Some(now);
                domains::save_domain(write.connection(), &domain).await?;
            }
        }
        write.commit().await?;
    }
}

/// Seals rows of older secrets with the newest, until `shutdown`.
pub(crate) async fn rotate(gateways: Arc<Gateways>, shutdown: Shutdown) {
    while !shutdown.has_begun() {
        if let Err(error) = rotate_once(&gateways, &shutdown).await {
            tracing::error!(%error, "cannot seal rows with the newest sealing secret; retrying in a minute");
        }
        shutdown.pause(INTERVAL).await;
    }
}

async fn rotate_once(gateways: &Gateways, shutdown: &Shutdown) -> Result<()> {
    let core = &gateways.core;
    let counts = core.store.count_sealed().await?;
    repair_names(core, &counts).await?;
    set_gauge(core, SealedCounts::of(&core.sealing, &counts));
    let needed = |name: &&str| counts.get(*name).is_some_and(|count| *count > 0);
    let mut done = 0;
    let older: Vec<&str> = core.sealing.older().filter(needed).collect();
    for seal in &older {
        for column in std::iter::once(None).chain(COLUMNS.map(Some)) {
            done += reseal_all(gateways, shutdown, column, seal).await?;
        }
    }
    if !older.is_empty() {
        let sealed = count(core).await?;
        set_gauge(core, sealed);
        tracing::info!(texts = done, left = sealed.older, "sealed keys and secrets with the newest sealing secret");
    }
    Ok(())
}

/// Seals again the rows of one secret in one column, or in certificates; returns their number.
async fn reseal_all(gateways: &Gateways, shutdown: &Shutdown, column: Option<Column>, seal: &str) -> Result<u64> {
    let core = &gateways.core;
    let (mut done, mut after) = (0, String::new());
    loop {
        let Resealed { done: now, last, revision } = match column {
            None => core.store.reseal_certificates(&core.sealing, seal, &after, BATCH).await?,
            Some(column) => core.store.reseal_column(column, &core.sealing, seal, &after, BATCH).await?,
        };
        let Some(last) = last else { return Ok(done) };
        (done, after) = (done + now, last);
        let moved = i64::try_from(now).unwrap_or(0);
        core.metrics.sealed.with_label_values(&["newest"]).add(moved);
        core.metrics.sealed.with_label_values(&["older"]).sub(moved);
        if let Some(revision) = revision {
            gateways.nodes.acknowledged(revision, APPLY_TIME_MAX).await;
        }
        shutdown.pause(PAUSE).await;
        if shutdown.has_begun() {
            return Ok(done);
        }
    }
}
