//! Withdrawals: names, keys, projects, and public parts of a project or domain, which gateways must stop serving.
//!
//! All follow the same steps. The change and the row of the withdrawal are one transaction. Then the caller waits up to
//! a second for every registered gateway process (`nodes`). When all have confirmed, the row is deleted and the answer
//! is 204. Otherwise the answer is 202 with the names of the others, an event says the same, and the row stays until
//! they have confirmed: later requests, operators and owners see it with the same names, and metrics count it.

use contract::feed::Revision;
use contract::project::ProjectUid;
use domains_api::types::{self, ListedWithdrawal};
use serde_json::json;

use crate::actor::Actor;
use crate::gateways::{ACKNOWLEDGEMENT_TIME_MAX, Gateways};
use crate::nodes::{Acknowledged, Nodes};
use crate::project::ProjectRef;
use crate::store::log::claim;
use crate::store::projects::find_project;
use crate::store::withdrawals::{self, Kind, Withdrawal};
use crate::store::{Result, Store, Write, acme};

/// Withdrawals that are read, oldest first, to measure since when each process is waited for.
const ROWS_MEASURED_MAX: i64 = 1_000;

/// Processes that metrics name, the first by name.
const PROCESSES_NAMED_MAX: usize = 64;

/// In place of the registered processes while their record is unreadable.
const RECORD_NOT_READ: &str = "processes on record, which could not be read";

/// Waits up to a second until every gateway process has confirmed `revision`, and ends the confirmed withdrawals. The
/// withdrawal is committed already, so this never fails: if the record of processes is unreadable, it waits for those
/// in memory, and the record is named among the unconfirmed.
pub(crate) async fn wait(gateways: &Gateways, revision: Revision) -> Result<Acknowledged> {
    let loaded = gateways.load_processes().await;
    let mut acknowledged = gateways.nodes.acknowledged_by_all(revision, ACKNOWLEDGEMENT_TIME_MAX).await;
    if let Err(error) = loaded {
        tracing::warn!(
            %error,
            revision = revision.0,
            "cannot read the list of gateway processes from the database; a withdrawal stays unconfirmed"
        );
        acknowledged.asked += 1;
        acknowledged.lagging.push(RECORD_NOT_READ.to_owned());
    }
    if acknowledged.lagging.is_empty() {
        match end(gateways, revision).await {
            Ok(true) => {}
            Ok(false) => acknowledged = gateways.nodes.status_of_all(revision),
            Err(error) => tracing::warn!(
                %error,
                revision = revision.0,
                "cannot record that gateways confirmed a withdrawal; retrying"
            ),
        }
    }
    Ok(acknowledged)
}

/// Commits a new withdrawal of `which`, and waits as [`wait`]. If a gateway has not confirmed it, an event of the project says so.
pub(crate) async fn confirm(
    gateways: &Gateways,
    write: Write,
    (kinds, which): (&[Kind], &str),
    project: &ProjectRef,
) -> Result<Acknowledged> {
    let revision = write.commit().await?;
    let acknowledged = wait(gateways, revision).await?;
    if acknowledged.lagging.is_empty() {
        return Ok(acknowledged);
    }
    for what in kinds {
        tracing::warn!(
            what = what.as_str(),
            which,
            project.id = %project,
            revision = revision.0,
            gateways = acknowledged.lagging.join(", "),
            "a withdrawal waits for these gateways to confirm it; they may still serve it"
        );
        if let Err(error) = record(&gateways.core.store, *what, which, project, &acknowledged).await {
            tracing::warn!(
                %error,
                "cannot record the event that a withdrawal waits for gateways; the withdrawal continues"
            );
        }
    }
    Ok(acknowledged)
}

/// As [`wait`], for an earlier withdrawal of `which`; `None` if it has ended.
pub(crate) async fn repeat(
    gateways: &Gateways,
    (kinds, which): (&[Kind], &str),
    project: &ProjectRef,
) -> Result<Option<Acknowledged>> {
    let found = gateways.core.store.withdrawals_of(&project.uid).await?;
    let waiting = found.iter().filter(|one| kinds.contains(&one.what) && one.which == which);
    // A withdrawal without a row, because the project has too many, is at least as old as the oldest row.
    let is_full = found.len() >= usize::try_from(withdrawals::WITHDRAWALS_OF_ONE_MAX).unwrap_or(usize::MAX);
    let oldest = found.first().filter(|_| is_full).map(|one| one.revision);
    let Some(revision) = waiting.map(|one| one.revision).max().or(oldest) else { return Ok(None) };
    wait(gateways, revision).await.map(Some)
}

async fn record(
    store: &Store,
    what: Kind,
    which: &str,
    project: &ProjectRef,
    acknowledged: &Acknowledged,
) -> Result<()> {
    let mut write = store.write().await?;
    // An erased project gets no event.
    if find_project(write.connection(), project).await?.is_none() {
        return Ok(());
    }
    let domain = if matches!(what, Kind::Name | Kind::Redirect) { which.parse().ok() } else { None };
    let detail = json!({ "what": what.as_str(), "which": which, "lagging": acknowledged.lagging });
    write.record(project, domain.as_ref(), "withdrawal.waiting", &Actor::system(), detail).await?;
    write.commit().await.map(drop)
}

/// Ends the withdrawals that every process has confirmed. Called periodically.
pub(crate) async fn end_acknowledged(gateways: &Gateways) -> Result<()> {
    let Some(oldest) = gateways.core.store.oldest_withdrawal().await? else { return Ok(()) };
    gateways.load_processes().await?;
    let applied = gateways.nodes.applied_by_all();
    if applied < oldest { Ok(()) } else { end(gateways, applied).await.map(drop) }
}

/// Ends the withdrawals up to `revision`, which every process has applied. Returns `false`, and ends nothing, if a
/// process has applied another history than this database's.
async fn end(gateways: &Gateways, revision: Revision) -> Result<bool> {
    let mut write = gateways.core.store.write().await?;
    gateways.invalidate_at(&claim::missing(write.connection(), gateways.nodes.positions()).await?);
    if gateways.nodes.applied_by_all() < revision {
        return Ok(false);
    }
    let now = write.now();
    let ended = withdrawals::end(write.connection(), revision).await?;
    let names = withdrawals::end_removals(write.connection(), revision).await?;
    for name in &names {
        acme::abandon_orders(write.connection(), name, now).await?;
    }
    if ended.is_empty() && names.is_empty() {
        return Ok(true);
    }
    write.commit().await?;
    for Withdrawal { what, which, project_name, since, .. } in ended {
        let waited_ms = now.since(since);
        tracing::info!(
            what = what.as_str(),
            which,
            project.id = project_name,
            waited_ms,
            "every gateway has confirmed a withdrawal"
        );
    }
    Ok(true)
}

/// The withdrawals of one project that some gateways have not confirmed.
pub(crate) struct PendingWithdrawals(Vec<ListedWithdrawal>);

impl PendingWithdrawals {
    /// Those of this project.
    pub(crate) async fn of(gateways: &Gateways, project: &ProjectUid) -> Result<Self> {
        let found = gateways.core.store.withdrawals_of(project).await?;
        if !found.is_empty() {
            gateways.load_processes().await?;
        }
        Ok(Self(found.iter().map(|withdrawal| listed(&gateways.nodes, withdrawal)).collect()))
    }

    /// The first of one of these kinds.
    pub(crate) fn find(&self, kinds: &[Kind], which: &str) -> Option<types::Withdrawal> {
        let of = |what: &Kind| self.0.iter().find(|one| one.withdrawal.what == *what && one.which == which);
        kinds.iter().find_map(of).map(|one| one.withdrawal.clone())
    }
}

/// A withdrawal, with the gateways that have not confirmed it.
pub(crate) fn listed(nodes: &Nodes, withdrawal: &Withdrawal) -> ListedWithdrawal {
    let lagging = nodes.status_of_all(withdrawal.revision).lagging;
    ListedWithdrawal {
        withdrawal: types::Withdrawal { what: withdrawal.what, since: withdrawal.since.into(), lagging },
        which: withdrawal.which.clone(),
        project: withdrawal.project_name.clone(),
        project_uid: withdrawal.project_uid.clone(),
        revision: withdrawal.revision,
    }
}

/// Brings the gauges up to date.
pub(crate) async fn measure(gateways: &Gateways) -> Result<()> {
    let core = &gateways.core;
    let counts = core.store.count_withdrawals().await?;
    for &what in Kind::ALL {
        let count = counts.iter().find(|counted| counted.what == what).map_or(0, |counted| counted.count);
        core.metrics.withdrawals.with_label_values(&[what.as_str()]).set(count);
    }
    let oldest = counts.iter().map(|counted| counted.oldest.to_seconds().0).min();
    core.metrics.withdrawal_oldest.set(oldest.unwrap_or(0));
    core.metrics.withdrawals_awaited.reset();
    let rows = core.store.withdrawals(ROWS_MEASURED_MAX).await?;
    if !rows.is_empty() {
        gateways.load_processes().await?;
    }
    let waits = gateways.nodes.all().into_iter().filter_map(|known| {
        let first = rows.iter().find(|row| row.revision > known.report.applied)?;
        Some((known.report.node, first.since))
    });
    for (process, since) in waits.take(PROCESSES_NAMED_MAX) {
        core.metrics.withdrawals_awaited.with_label_values(&[&process]).set(since.to_seconds().0);
    }
    Ok(())
}
