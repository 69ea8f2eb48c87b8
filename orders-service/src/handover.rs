//! Hands what happened to orders to the control plane, which tells it to whom a project's owner chose.
//!
//! An event waits in the store's outbox, written in the transaction of its change, and is forgotten when the control
//! plane has it on disk: so it is handed over at least once, whatever crashes, and told once, because the control plane
//! knows events by their numbers. This is a task of its own: a control plane that is slow or away costs no request
//! anything. While it is away events wait; of more than [`UNTOLD_MAX`] the oldest are dropped, counted, and remain in
//! each order's history.

use std::time::Duration;

use anyhow::Context as _;
use chassis::secret::Secret;
use chassis::shutdown::Shutdown;
use contract::event::{EVENTS_MAX, ORDER_EVENTS_PATH, OrderEvent, OrderEvents};
use reqwest::{Client, StatusCode};

use crate::metrics::{EventResult, Metrics};
use crate::orders::Orders;
use crate::store::{StoreError, Untold, Waiting};

/// Events that may wait: some 40 MB on disk.
pub(crate) const UNTOLD_MAX: u32 = 100_000;

/// Between two looks into an outbox that was empty.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// After a hand-over that failed: the first wait, and the longest of those that double from there.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// How long one hand-over may take.
const HANDOVER_TIME_MAX: Duration = Duration::from_secs(10);

/// Events read at once.
#[expect(clippy::cast_possible_truncation, reason = "the number is a few hundred")]
const LIMIT: u32 = EVENTS_MAX as u32;

/// Where the control plane listens for services of the platform: `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlane(String);

/// Text that is no address of a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write the address of its internal listener, such as \"http://127.0.0.1:7003\"")]
pub struct InvalidControlPlane;

impl std::str::FromStr for ControlPlane {
    type Err = InvalidControlPlane;

    fn from_str(text: &str) -> Result<Self, InvalidControlPlane> {
        let url = reqwest::Url::parse(text).map_err(|_| InvalidControlPlane)?;
        let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        let bare = url.path() == "/" && url.fragment().is_none() && url.has_host();
        let spoken = matches!(url.scheme(), "http" | "https");
        if plain && bare && spoken { Ok(Self(text.trim_end_matches('/').to_owned())) } else { Err(InvalidControlPlane) }
    }
}

impl ControlPlane {
    /// What is at this path.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }
}

/// An HTTP client for the control plane.
///
/// # Errors
/// When there can be none.
pub(crate) fn client() -> anyhow::Result<Client> {
    let builder = Client::builder().timeout(HANDOVER_TIME_MAX).redirect(reqwest::redirect::Policy::none()).no_proxy();
    builder.build().context("an HTTP client for the control plane")
}

/// The way to the control plane.
pub(crate) struct Handover {
    orders: Orders,
    metrics: Metrics,
    client: Client,
    url: String,
    token: Secret,
}

/// Why nothing was handed over.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the control plane is not reached: {0}")]
    Unreached(#[from] reqwest::Error),
    #[error("the control plane answered {0}")]
    Refused(StatusCode),
    #[error("the store has trouble: {0}")]
    Store(#[from] StoreError),
}

impl Handover {
    /// To the control plane of the settings, with the token that only services of this platform have.
    ///
    /// # Errors
    /// When there can be no HTTP client.
    pub(crate) fn new(
        orders: Orders,
        metrics: Metrics,
        control_plane: &ControlPlane,
        secret: &Secret,
    ) -> anyhow::Result<Self> {
        let url = control_plane.at(ORDER_EVENTS_PATH);
        Ok(Self { orders, metrics, client: client()?, url, token: chassis::guard::events_token(secret) })
    }

    /// Hands over until `shutdown`. What is on its way then is repeated at the next start.
    pub(crate) async fn run(self, shutdown: Shutdown) {
        let mut failures = 0_u32;
        while !shutdown.has_begun() {
            let round = tokio::select! {
                round = self.round() => round,
                () = shutdown.begun() => return,
            };
            let wait = match round {
                Ok(more) => {
                    if failures > 0 {
                        tracing::info!("events are handed to the control plane again");
                    }
                    failures = 0;
                    if more { Duration::ZERO } else { LOOK_INTERVAL }
                }
                Err(error) => {
                    if failures == 0 {
                        tracing::warn!(%error, "events cannot be handed to the control plane; they wait");
                    }
                    failures = failures.saturating_add(1);
                    RETRY_FIRST.saturating_mul(1 << (failures - 1).min(5)).min(RETRY_MAX)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = shutdown.begun() => return,
            }
        }
    }

    /// One hand-over. Whether there may be more.
    async fn round(&self) -> Result<bool, Failure> {
        let store = self.orders.store();
        let Waiting { events, damaged } = store.untold(LIMIT).await?;
        self.metrics.events_oldest.set(events.first().map_or(0, |event| event.at.to_seconds().0));
        let seen = events.len() + damaged.len();
        if seen == 0 {
            return Ok(false);
        }
        for number in &damaged {
            tracing::error!(event = number, "an event in the outbox is not what was written; it is told to nobody");
        }
        self.count(EventResult::Damaged, damaged.len());
        let (mut done, numbers) = (damaged, events.iter().map(|event| event.number).collect::<Vec<_>>());
        let handed_over = if events.is_empty() { Ok(()) } else { self.hand_over(store.mark(), events).await };
        if handed_over.is_ok() {
            self.count(EventResult::HandedOver, numbers.len());
            done.extend(numbers);
        }
        // The bound is kept also, and above all, while nothing can be handed over.
        let dropped = store.forget(done, UNTOLD_MAX).await?;
        if dropped > 0 {
            self.count(EventResult::Dropped, usize::try_from(dropped).unwrap_or(usize::MAX));
            tracing::error!(dropped, "too many events wait for the control plane; the oldest are told to nobody");
        }
        handed_over.map(|()| seen == EVENTS_MAX)
    }

    fn count(&self, result: EventResult, events: usize) {
        self.metrics.events.with_label_values(&[result.as_str()]).inc_by(u64::try_from(events).unwrap_or(u64::MAX));
    }

    async fn hand_over(&self, source: &str, events: Vec<Untold>) -> Result<(), Failure> {
        let body = OrderEvents { source: source.to_owned(), events: events.into_iter().map(written).collect() };
        let request = self.client.post(&self.url).bearer_auth(self.token.to_token().as_str()).json(&body);
        let status = request.send().await?.status();
        if status == StatusCode::NO_CONTENT { Ok(()) } else { Err(Failure::Refused(status)) }
    }
}

/// An event as it is handed over.
fn written(event: Untold) -> OrderEvent {
    OrderEvent {
        number: event.number,
        project: event.project,
        kind: format!("order.{}", event.kind.as_str()),
        at: event.at,
        order: serde_json::from_str(&event.order).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_plane_is_a_host_and_a_port_and_nothing_else() {
        for good in ["http://127.0.0.1:7003", "http://domains-service:7003/", "https://control.internal"] {
            let read: ControlPlane = good.parse().unwrap();
            assert!(!read.0.ends_with('/'), "{good}");
        }
        for bad in
            ["", "127.0.0.1:7003", "ftp://a", "http://a/b", "http://a?b", "http://u:p@a", "http://a#b", "http://"]
        {
            assert_eq!(bad.parse::<ControlPlane>(), Err(InvalidControlPlane), "{bad:?}");
        }
    }
}
