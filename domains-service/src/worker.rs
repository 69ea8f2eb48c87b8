//! Background work: checks of due domains, the end of removals, and cleanup of tables.
//!
//! A bounded number of domains is reconciled at once. When the database or DNS is away, the worker waits and tries
//! again; nothing is lost, because due work is stored.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chassis::shares::Shares;
use chassis::shutdown::Shutdown;
use chassis::sql::RowKey;
use futures_util::FutureExt as _;
use tokio::task::JoinSet;

use crate::app::Issuing;
use crate::domain::{Domain, Status};
use crate::gateways::Gateways;
use crate::reconcile::{self, Reason};
use crate::store::sessions::{ABSOLUTE_MILLIS_MAX, IDLE_MILLIS_MAX};
use crate::store::usage::USAGE_DAYS_MAX;
use crate::store::{Result, Store, StoreError, acme, domains, keys, numbers, processes, projects, webhooks};
use crate::withdrawals;

/// Interval of searches for due domains; a change wakes the worker at once.
const SEARCH_INTERVAL: Duration = Duration::from_millis(200);

/// Interval of searches for names that are next in a queue.
const OFFER_INTERVAL: Duration = Duration::from_millis(500);

/// Domains reconciled at once, of all projects and of one.
const DOMAINS_AT_ONCE: usize = 32;
const DOMAINS_AT_ONCE_PER_PROJECT: usize = 16;

/// Domains per search.
const DOMAINS_PER_SEARCH: i64 = 256;

/// Interval of the cleanup of tables.
const TIDY_INTERVAL: Duration = Duration::from_mins(1);

/// Time for work in progress at shutdown; less than requests in progress get.
const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(15);

/// Interval of searches for orders of removed names.
const ABANDON_INTERVAL: Duration = Duration::from_secs(1);

/// Abandoned orders per search.
const ORDERS_PER_ROUND: i64 = 16;

/// Pause before the next request to deactivate authorizations, after an authority did not answer.
const ABANDON_AGAIN_MILLIS: i64 = 10 * 60 * 1_000;

/// No authority reuses a proof for longer than 30 days, with room to spare.
const AUTHORIZATION_MILLIS_MAX: i64 = 60 * 86_400 * 1_000;

/// Retention of revoked and expired keys, and of former holders of names.
const MEMORY_MILLIS: i64 = 90 * 86_400 * 1_000;

/// Events are kept this long.
pub(crate) const EVENTS_MILLIS: i64 = 400 * 86_400 * 1_000;

/// Retention of finished webhook deliveries, for display and repetition.
const DELIVERIES_MILLIS: i64 = 30 * 86_400 * 1_000;

/// A delivery is overdue when it has been due for this long.
const OVERDUE_MILLIS: i64 = 60 * 1_000;

/// Removed projects erased per round: each may have many events.
const PROJECTS_ERASED_AT_ONCE: i64 = 10;

/// Time after which an unreadable row that was not read again leaves the list: it is deleted, or has another key.
/// Postponed domains and orders are read again earlier.
const UNREAD_MAX: Duration = Duration::from_hours(2);

/// Unreadable rows that metrics name, by table.
const ROWS_NAMED_MAX: usize = 100;

/// Stale keys deleted per round.
const KEYS_PER_TIDYING: i64 = 500;

/// Domains in progress.
struct InProgress {
    tasks: JoinSet<Result<()>>,
    of_projects: Arc<Shares>,
    /// With one permit for each domain.
    of_domains: Arc<Shares>,
}

impl InProgress {
    /// Starts on a domain, unless it is in progress already, or a maximum is reached.
    fn begin(&mut self, issuing: &Arc<Issuing>, domain: Domain) {
        let uid = domain.project.uid.as_str();
        let of_domain = self.of_domains.take(&format!("{uid} {}", domain.name));
        let Some(permits) = of_domain.zip(self.of_projects.take(uid)) else { return };
        let issuing = issuing.clone();
        self.tasks.spawn(async move {
            let _permits = permits;
            match reconcile::reconcile(&issuing, &domain, Reason::Schedule).await {
                // The row is recorded as unreadable; the domain waits for its repair.
                Err(StoreError::Unreadable { .. }) => {
                    let (store, now) = (&issuing.core.store, issuing.core.clock.now());
                    store.postpone_unreadable(&domains::row_key(&domain), now).await
                }
                reconciled => reconciled.map(|_| ()),
            }
            .inspect_err(|error| tracing::error!(%error, domain = %domain.name, "cannot reconcile a domain; retrying"))
        });
    }

    /// Waits until one is done; returns whether it succeeded.
    async fn one_done(&mut self) -> bool {
        match self.tasks.join_next().await {
            Some(Ok(result)) => result.is_ok(),
            Some(Err(broken)) => {
                tracing::error!(
                    error = %broken,
                    "the task of a domain panicked; retrying when its lease ends. This is a defect: report it with \
                     the panic message from standard error"
                );
                false
            }
            None => std::future::pending().await,
        }
    }
}

/// Reconciles due domains until `shutdown`. A slow domain (slow DNS or authority) delays only a few of its own project.
pub(crate) async fn reconcile_domains(issuing: Arc<Issuing>, shutdown: Shutdown) {
    let mut in_progress = InProgress {
        tasks: JoinSet::new(),
        of_projects: Shares::new(DOMAINS_AT_ONCE, DOMAINS_AT_ONCE_PER_PROJECT),
        of_domains: Shares::new(DOMAINS_AT_ONCE, 1),
    };
    let mut search = true;
    while !shutdown.has_begun() {
        if search && let Err(error) = claim_due(&issuing, &mut in_progress).await {
            tracing::error!(%error, "cannot claim due domains; retrying");
        }
        search = tokio::select! {
            () = shutdown.begun() => break,
            () = issuing.core.wake.notified() => true,
            () = tokio::time::sleep(SEARCH_INTERVAL) => true,
            // A failed domain is tried again after the pause, not at once.
            went_well = in_progress.one_done() => went_well,
        };
    }
    // An order may take minutes. The next worker continues the orders that are cut off here.
    let rest = async { while in_progress.tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_TIME_MAX, rest).await.is_err() {
        in_progress.tasks.shutdown().await;
    }
}

/// Claims due domains, up to the maximum in progress.
async fn claim_due(issuing: &Arc<Issuing>, in_progress: &mut InProgress) -> Result<()> {
    if in_progress.tasks.len() >= DOMAINS_AT_ONCE {
        return Ok(());
    }
    let (store, now) = (&issuing.core.store, issuing.core.clock.now());
    if let Err(error) = store.give_back_leases(now).await {
        tracing::warn!(%error, "cannot give back the lease of a domain; retrying until the lease ends");
    }
    for domain in store.due_domains(now, DOMAINS_AT_ONCE_PER_PROJECT, DOMAINS_PER_SEARCH).await? {
        in_progress.begin(issuing, domain);
    }
    Ok(())
}

/// Makes the names due whose turn has come in a queue of orders, until `shutdown`.
pub(crate) async fn offer_turns(issuing: Arc<Issuing>, shutdown: Shutdown) {
    while !shutdown.has_begun() {
        if issuing.authorities.offer_turns().await > 0 {
            issuing.core.wake.notify_one();
        }
        shutdown.pause(OFFER_INTERVAL).await;
    }
}

/// Ends withdrawals until `shutdown`, as gateways acknowledge them.
pub(crate) async fn end_withdrawals(gateways: Arc<Gateways>, shutdown: Shutdown) {
    while !shutdown.has_begun() {
        if let Err(error) = withdrawals::end_acknowledged(&gateways).await {
            tracing::error!(%error, "cannot record that gateways confirmed withdrawals; retrying");
        }
        shutdown.pause(SEARCH_INTERVAL).await;
    }
}

/// Deactivates authorizations of removed names at the authorities, until `shutdown`.
pub(crate) async fn abandon_orders(issuing: Arc<Issuing>, shutdown: Shutdown) {
    while !shutdown.has_begun() {
        let abandoned = tokio::select! {
            abandoned = abandon_due_orders(&issuing) => abandoned,
            // The remaining work is cut off.
            () = shutdown.begun().then(|()| tokio::time::sleep(SHUTDOWN_TIME_MAX)) => return,
        };
        if let Err(error) = abandoned {
            tracing::error!(%error, "cannot read orders of removed domains; retrying");
        }
        shutdown.pause(ABANDON_INTERVAL).await;
    }
}

async fn abandon_due_orders(Issuing { core, authorities, .. }: &Issuing) -> Result<()> {
    for order in core.store.abandoned_orders(core.clock.now(), ORDERS_PER_ROUND).await? {
        let abandoned = match authorities.find(&order.authority) {
            Some(authority) => authority.abandon(&order.url).await,
            None => Ok(()), // the authority is no longer configured: its authorizations expire
        };
        let is_old = core.clock.now().since(order.created_at) > AUTHORIZATION_MILLIS_MAX;
        match abandoned {
            Err(error) if !is_old => {
                tracing::warn!(domain = %order.hostname, authority = order.authority, %error,
                    "cannot deactivate authorizations of a removed domain; retrying");
                core.store.postpone_abandonment(&order, core.clock.now().plus(ABANDON_AGAIN_MILLIS)).await?;
            }
            _ => {
                core.store.forget_abandoned(&order).await?;
                tracing::info!(
                    domain = %order.hostname, authority = order.authority,
                    "ended an order of a removed domain"
                );
            }
        }
    }
    Ok(())
}

/// Bounds the tables, the change log at this number of rows, until `shutdown`.
pub(crate) async fn tidy(gateways: Arc<Gateways>, change_log_rows: u64, shutdown: Shutdown) {
    while !shutdown.has_begun() {
        if let Err(error) = tidy_once(&gateways, change_log_rows).await {
            tracing::error!(%error, "cannot delete expired rows; retrying");
        }
        shutdown.pause(TIDY_INTERVAL).await;
    }
}

async fn tidy_once(Gateways { core, nodes, .. }: &Gateways, change_log_rows: u64) -> Result<()> {
    core.store.repair_projects(None).await?;
    let forgotten = core.store.compact_log(change_log_rows).await?;
    if forgotten > 0 {
        tracing::info!(changes = forgotten, "compacted the change log");
    }
    let mut write = core.store.write().await?;
    numbers::put_right(&mut write).await?;
    let now = write.now();
    for key in keys::stale_keys(write.connection(), now.plus(-MEMORY_MILLIS), KEYS_PER_TIDYING).await? {
        keys::withdraw(&mut write, &key).await?;
        keys::delete_key(write.connection(), &key).await?;
    }
    acme::tidy(write.connection(), now).await?;
    domains::forget_tombstones(write.connection(), now.plus(-MEMORY_MILLIS)).await?;
    write.forget_events(now.plus(-EVENTS_MILLIS)).await?;
    for process in processes::forget_silent(write.connection(), nodes.forgotten_before()).await? {
        tracing::warn!(
            process = process.trim_start_matches('/'),
            "a gateway process was silent for 24 hours; removals no longer wait for it"
        );
    }
    webhooks::forget_deliveries(&mut write, now.plus(-DELIVERIES_MILLIS)).await?;
    let today = now.to_seconds().0.div_euclid(86_400);
    // Gateways report yesterday's figures shortly after midnight, and never older ones.
    write.tidy_usage(today - USAGE_DAYS_MAX, today - 1).await?;
    write.tidy_bans().await?;
    webhooks::forget_taken(&mut write, now.plus(-DELIVERIES_MILLIS)).await?;
    write.commit().await?;
    if let Some(since) = Instant::now().checked_sub(UNREAD_MAX) {
        core.store.reader().unreadable().forget_unread_since(since);
    }
    erase_due_projects(&core.store).await?;
    core.store.forget_sessions(now.plus(-ABSOLUTE_MILLIS_MAX), now.plus(-IDLE_MILLIS_MAX), now).await?;
    core.store.wipe_erased().await
}

/// Erases removed projects after their restore period.
async fn erase_due_projects(store: &Store) -> Result<()> {
    let mut write = store.write().await?;
    let now = write.now();
    for project in projects::to_erase(write.connection(), now, PROJECTS_ERASED_AT_ONCE).await? {
        projects::erase(write.connection(), &project.id, now).await?;
        tracing::info!(project.id = %project.id, project.uid = %project.id.uid, "erased a removed project after its restore period");
    }
    projects::end_erasures(write.connection(), now.plus(-EVENTS_MILLIS)).await?;
    write.commit().await.map(drop)
}

/// Brings the gauges up to date.
pub(crate) async fn measure(gateways: &Gateways) -> Result<()> {
    let core = &gateways.core;
    let mut counts: HashMap<String, i64> = core.store.domains_by_status().await?.into_iter().collect();
    for status in Status::ALL {
        let count = counts.remove(status.as_str()).unwrap_or(0);
        core.metrics.states.with_label_values(&[status.as_str()]).set(count);
    }
    let oldest = core.store.oldest_certificate_wait().await?;
    core.metrics.certificate_wait_oldest.set(oldest.map_or(0, |oldest| oldest.to_seconds().0));
    core.metrics.unreadable_row.reset();
    for (RowKey { table, row, of }, bad) in core.store.reader().unreadable().entries(ROWS_NAMED_MAX) {
        core.metrics.unreadable_row.with_label_values(&[table, &row, &of, bad.column]).set(1);
    }
    core.metrics.of_another_history.set(i64::try_from(gateways.nodes.of_another_history().len()).unwrap_or(i64::MAX));
    let revision = core.store.newest_revision().await?;
    core.metrics.revision.set(revision.0.cast_signed());
    withdrawals::measure(gateways).await?;
    let (waiting, overdue) = core.store.delivery_backlog(core.clock.now().plus(-OVERDUE_MILLIS)).await?;
    core.metrics.webhook_deliveries.with_label_values(&["waiting"]).set(waiting);
    core.metrics.webhook_deliveries.with_label_values(&["overdue"]).set(overdue);
    Ok(())
}
