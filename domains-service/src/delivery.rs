//! The worker that delivers webhooks from the outbox.
//!
//! Each endpoint gets one attempt at a time, the oldest due message first; a message that waits for its next attempt
//! does not delay later ones. A slow receiver therefore holds one of many permits, and a project a bounded number. An
//! attempt holds a claim of [`CLAIM`] and extends it while it runs, so after a crash any replica repeats the attempt
//! that soon. While the database is away nothing is sent.

use chassis::random::jitter;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use chassis::clock::Clock;
use chassis::shares::Shares;
use chassis::shutdown::Shutdown;
use chassis::webhook::{Attempt, AttemptResult, Message, next_attempt};
use contract::time::UnixMillis;
use tokio::task::JoinSet;

use crate::app::ApiState;
use crate::store::Result;
use crate::store::webhooks::{self, Delivery, DueDelivery};
use crate::webhook::EndpointRecord;

/// Interval of searches for due messages.
const SEARCH_INTERVAL: Duration = Duration::from_millis(200);

/// Attempts at the same time.
const ATTEMPTS_AT_ONCE: usize = 64;

/// Attempts at the same time for one project.
const ATTEMPTS_PER_PROJECT: usize = 4;

/// Duration of a claim on a delivery; an attempt that did not extend it counts as lost. Longer than the difference of
/// replicas' clocks and the delay of a slow database, and short enough for the repeat after a crash.
const CLAIM: Duration = Duration::from_secs(10);

/// Interval at which a claim is extended.
const RENEW_INTERVAL: Duration = Duration::from_secs(3);

/// Sends due deliveries, and disables endpoints that failed for `disable_after`, until `shutdown`. Then finishes the
/// attempts in progress, each of which has a deadline.
pub(crate) async fn deliver(api: Arc<ApiState>, disable_after: Duration, shutdown: Shutdown) {
    let mut attempts = Attempts {
        tasks: JoinSet::new(),
        of_projects: Shares::new(ATTEMPTS_AT_ONCE, ATTEMPTS_PER_PROJECT),
        of_endpoints: Shares::new(ATTEMPTS_AT_ONCE, 1),
    };
    while !shutdown.has_begun() {
        match api.core.store.due_deliveries(api.core.clock.now()).await {
            Ok(due) => due.iter().for_each(|due| attempts.start(&api, disable_after, due)),
            Err(error) => tracing::error!(%error, "cannot read due webhook deliveries; retrying"),
        }
        tokio::select! {
            () = shutdown.begun() => {}
            // The claim of an attempt that broke off runs out.
            _ = attempts.tasks.join_next(), if !attempts.tasks.is_empty() => {}
            () = tokio::time::sleep(SEARCH_INTERVAL) => {}
        }
    }
    while attempts.tasks.join_next().await.is_some() {}
}

/// The attempts in progress.
struct Attempts {
    tasks: JoinSet<()>,
    of_projects: Arc<Shares>,
    /// With one permit for each endpoint.
    of_endpoints: Arc<Shares>,
}

impl Attempts {
    /// Starts an attempt, unless its endpoint has one in progress or the maximum is reached; a later search finds it
    /// again.
    fn start(&mut self, api: &Arc<ApiState>, disable_after: Duration, due: &DueDelivery) {
        let of_endpoint = self.of_endpoints.take(&due.endpoint);
        let Some(permits) = of_endpoint.zip(self.of_projects.take(&due.project)) else { return };
        let (api, delivery) = (api.clone(), due.delivery);
        self.tasks.spawn(async move {
            let _permits = permits;
            if let Err(error) = attempt(&api, disable_after, delivery).await {
                tracing::error!(%error, "cannot record a webhook delivery; it will be sent again");
            }
        });
    }
}

async fn attempt(api: &ApiState, disable_after: Duration, delivery: i64) -> Result<()> {
    let core = &api.core;
    let Some(mut delivery) = webhooks::claim(&core.store, delivery, claim_end(&*core.clock)).await? else {
        return Ok(());
    };
    let Some(endpoint) = core.store.webhook(&delivery.endpoint).await? else { return Ok(()) };
    if endpoint.unreadable.is_some_and(|column| column != "events") {
        // Its URL or secret may be another than it seems. It is claimed again until the record is repaired.
        return Ok(());
    }
    let started = core.clock.monotonic();
    let message = delivery.clone();
    let mut sending = pin!(send(api, &endpoint, &message));
    let attempt = loop {
        if let Ok(attempt) = tokio::time::timeout(RENEW_INTERVAL, &mut sending).await {
            break attempt;
        }
        if let Err(error) = webhooks::renew(&core.store, &mut delivery, claim_end(&*core.clock)).await {
            tracing::warn!(%error, "cannot extend the claim on a webhook delivery; it may be sent twice");
        }
    };
    let took = core.clock.monotonic().saturating_sub(started);
    core.metrics.webhook_attempts.with_label_values(&[attempt.result.as_str()]).inc();
    core.metrics.webhook_seconds.with_label_values::<&str>(&[]).observe(took.as_secs_f64());
    let attempts = u32::try_from(delivery.attempts).unwrap_or(u32::MAX);
    let next = match attempt.result {
        AttemptResult::Delivered | AttemptResult::Gone => None,
        _ => next_attempt(attempts, core.clock.now(), attempt.retry_after, jitter()),
    };
    let patience = i64::try_from(disable_after.as_millis()).unwrap_or(i64::MAX);
    let disabled = webhooks::record(&core.store, &delivery, &endpoint.project, &attempt, next, patience).await?;
    if let Some(reason) = disabled {
        tracing::warn!(project.id = %endpoint.project, webhook = endpoint.id, reason = reason.as_str(),
            "disabled a webhook; its owner must enable it again");
    }
    Ok(())
}

/// The end of a claim that starts now.
fn claim_end(clock: &dyn Clock) -> UnixMillis {
    clock.now().plus(i64::try_from(CLAIM.as_millis()).unwrap_or(i64::MAX))
}

async fn send(api: &ApiState, endpoint: &EndpointRecord, delivery: &Delivery) -> Attempt {
    let now = api.core.clock.now();
    let secrets = match endpoint.secrets(&api.core.sealing, now) {
        Ok(secrets) => secrets,
        Err(error) => {
            tracing::error!(
                error = format!("{error:#}"),
                webhook = endpoint.id,
                "cannot sign a webhook delivery; the delivery fails. The webhook's owner must rotate its secret"
            );
            return Attempt {
                result: AttemptResult::Unreachable,
                status: None,
                retry_after: None,
                explanation: Some("the message could not be signed; rotate the secret"),
            };
        }
    };
    let message = Message { id: &delivery.message, at: now.to_seconds(), body: &delivery.body, secrets: &secrets };
    api.webhook_sender.send(&endpoint.url, &message).await
}
