//! Rotation of the sealing secret while all processes run.
//!
//! A service may have several secrets: it seals with the newest and opens with all. A background task seals older rows
//! again with the newest secret, in small batches. Each batch commits by itself, so a crash loses nothing and the next
//! run continues. Resealed certificates are changes that gateways must load: a batch waits until the live gateways have
//! applied the one before, so that a million certificates delay no other change. Replicas may do this at the same time.
//!
//! An operator may remove a secret when no row needs it any more. Before that, the service refuses to start and says
//! what to do, except when only one row needs the secret. So an operator who removes a secret here first sees the
//! mistake before any gateway does. For a secret that is lost for good, [`give_up`] drops the rows that only it opens.
//! While the database is away, all of this waits and is tried again.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use chassis::shutdown::Shutdown;

use crate::app::App;
use crate::common::Core;
use crate::keyring;
use crate::nodes::Nodes;
use crate::store::sealed::{COLUMNS, Column, Resealed, Seals};
use crate::store::{StoreError, domains};

/// Texts sealed anew at once.
const BATCH: i64 = 50;

/// Damaged texts that the log names, of each column.
const NAMED_MAX: i64 = 100;

/// Between two batches: others want to write as well.
const PAUSE: Duration = Duration::from_millis(50);

/// How long the gateways may take to learn a batch. One that is slower is not waited for.
const LEARNING_TIME_MAX: Duration = Duration::from_secs(5);

/// Between two searches: another replica may have sealed something with the secret that it was started with.
const INTERVAL: Duration = Duration::from_mins(1);

/// Brings the gauge up to date.
fn show(core: &Core, seals: Seals) {
    for (word, count) in Seals::WORDS.iter().zip([seals.newest, seals.older, seals.missing]) {
        core.metrics.sealed.with_label_values(&[word]).set(count);
    }
}

/// How many texts are sealed with what, now.
pub(crate) async fn look(core: &Core) -> Result<Seals, StoreError> {
    Ok(Seals::of(&core.sealing, &core.store.count_seals().await?))
}

/// Makes sure, before anything is served, that no secret is missing; or goes on without what does not open, if it is
/// `lost`. A text that alone names its secret is damaged, and stops nothing where anything else shows that our secrets
/// are right.
pub(crate) async fn check(core: &Core, lost: bool) -> anyhow::Result<()> {
    let found = core.store.count_seals().await.context("counting sealed rows")?;
    if Seals::of(&core.sealing, &found).missing == 0 {
        return Ok(());
    }
    mend(core, &found).await.context("repairing the names of sealing secrets")?;
    let counts = core.store.count_seals().await.context("counting sealed rows")?;
    let seals = Seals::of(&core.sealing, &counts);
    let missing = seals.missing;
    if missing == 0 {
        return Ok(());
    }
    let names: Vec<&String> = counts.keys().filter(|name| !core.sealing.has(name)).collect();
    let is_right = seals.newest + seals.older > 0 || keyring::opens(core).await.context("reading keys of gateways")?;
    if !lost && is_right && names.iter().all(|name| is_damaged(&counts, name)) {
        for name in names {
            say_damaged(core, name).await.context("listing damaged rows")?;
        }
        return Ok(());
    }
    anyhow::ensure!(
        lost,
        "{missing} private keys or secrets of webhooks are sealed with a sealing secret that was taken away (named \
         {names:?}). Put it back, in a line below the others of sealing_secret_file, start again, and take it away when \
         `tollhouse status` says sealed_with_older 0. If it is lost for good, set sealing_secret_lost = true: the service \
         drops what it sealed and orders new certificates; webhooks need new secrets"
    );
    for name in names {
        give_up(core, name).await.context("dropping rows sealed with the lost secret")?;
    }
    tracing::warn!(rows = missing, "dropped rows of a lost sealing secret; owners must rotate their webhooks' secrets");
    Ok(())
}

/// Whether no text but a damaged one needs the secret of this name. Two are not damaged in the same way.
fn is_damaged(counts: &BTreeMap<String, i64>, name: &str) -> bool {
    name.is_empty() || counts.get(name) == Some(&1)
}

/// Writes anew which secret a certificate needs, where its column is damaged and its key is not.
async fn mend(core: &Core, counts: &BTreeMap<String, i64>) -> Result<(), StoreError> {
    for name in counts.keys().filter(|name| !core.sealing.has(name) && is_damaged(counts, name)) {
        core.store.mend_seals(name, BATCH).await?;
    }
    Ok(())
}

/// Names the texts that a damaged name of a secret stands before.
async fn say_damaged(core: &Core, name: &str) -> Result<(), StoreError> {
    for (table, row) in core.store.texts_with(name, NAMED_MAX).await? {
        tracing::error!(
            table = table.as_str(),
            row,
            secret = name,
            "skipped a row that no sealing secret opens; all others are in use. If its secret was removed, put it back into \
             sealing_secret_file. If the row is damaged, remove and add the domain, rotate the webhook's secret, or \
             delete the row of the order or account"
        );
    }
    Ok(())
}

/// Lets go of what only a lost secret opens: accounts and orders are begun anew, certificates ordered anew. What a
/// certificate's gateways still have in memory is served until then.
async fn give_up(core: &Core, seal: &str) -> Result<(), StoreError> {
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

/// Seals anew what needs another than the newest secret, until `shutdown`.
pub(crate) async fn keep_new(app: std::sync::Arc<App>, shutdown: Shutdown) {
    while !shutdown.has_begun() {
        if let Err(error) = round(&app.core, &app.gateways.nodes, &shutdown).await {
            tracing::error!(%error, "could not seal rows with the newest secret; retrying in a minute");
        }
        tokio::select! {
            () = shutdown.begun() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

async fn round(core: &Core, nodes: &Nodes, shutdown: &Shutdown) -> Result<(), StoreError> {
    let counts = core.store.count_seals().await?;
    mend(core, &counts).await?;
    show(core, Seals::of(&core.sealing, &counts));
    let needed = |name: &&str| counts.get(*name).is_some_and(|count| *count > 0);
    let mut done = 0;
    let older: Vec<&str> = core.sealing.older().filter(needed).collect();
    for seal in &older {
        for column in std::iter::once(None).chain(COLUMNS.map(Some)) {
            done += all_in(core, nodes, shutdown, column, seal).await?;
        }
    }
    if !older.is_empty() {
        let seals = look(core).await?;
        show(core, seals);
        tracing::info!(texts = done, left = seals.older, "sealed keys and secrets with the newest sealing secret");
    }
    Ok(())
}

/// Seals anew what needs one secret in one column, or in certificates; how many texts.
async fn all_in(
    core: &Core,
    nodes: &Nodes,
    shutdown: &Shutdown,
    column: Option<Column>,
    seal: &str,
) -> Result<u64, StoreError> {
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
            nodes.acknowledged(revision, LEARNING_TIME_MAX).await;
        }
        tokio::select! {
            () = shutdown.begun() => return Ok(done),
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}
