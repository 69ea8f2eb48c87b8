//! Hands what happened to orders to the control plane, which tells it to whom a project's owner chose.
//!
//! An event waits in the store's outbox, written in the transaction of its change, and is forgotten when the control
//! plane has it on disk: so it is handed over at least once, whatever crashes, and told once, because the control plane
//! knows events by their numbers. This is a task of its own: a control plane that is slow or away costs no request
//! anything. While it is away events wait; of more than [`UNDELIVERED_MAX`] the oldest are dropped, counted, and remain in
//! each order's history.

use std::time::Duration;

use contract::event::{EVENTS_MAX, ORDER_EVENTS_PATH, OrderEvent, OrderEvents};
use reqwest::{Method, StatusCode};

use crate::control_plane::{ControlPlane, Failure, PeriodicTask};
use crate::metrics::{EventResult, Metrics};
use crate::orders::Orders;
use crate::store::{Undelivered, Waiting};

/// Events that may wait: some 40 MB on disk.
pub(crate) const UNDELIVERED_MAX: u32 = 100_000;

/// Between two looks into an outbox that was empty.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Events read at once.
#[expect(clippy::cast_possible_truncation, reason = "the number is a few hundred")]
const LIMIT: u32 = EVENTS_MAX as u32;

/// The way of events to the control plane.
pub(crate) struct OutboxRelay {
    pub(crate) orders: Orders,
    pub(crate) metrics: Metrics,
    pub(crate) control_plane: ControlPlane,
}

impl PeriodicTask for OutboxRelay {
    const FAILED: &'static str = "events cannot be handed to the control plane; they wait";
    const RECOVERED: &'static str = "events are handed to the control plane again";

    async fn round(&self) -> Result<Duration, Failure> {
        Ok(if self.relay_batch().await? { Duration::ZERO } else { LOOK_INTERVAL })
    }
}

impl OutboxRelay {
    /// One hand-over. Whether there may be more.
    async fn relay_batch(&self) -> Result<bool, Failure> {
        let store = self.orders.store();
        let Waiting { events, damaged } = store.undelivered(LIMIT).await?;
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
        let sent = if events.is_empty() { Ok(()) } else { self.send(store.store_id(), events).await };
        if sent.is_ok() {
            self.count(EventResult::HandedOver, numbers.len());
            done.extend(numbers);
        }
        // The bound is kept also, and above all, while nothing can be handed over.
        let dropped = store.forget(done, UNDELIVERED_MAX).await?;
        if dropped > 0 {
            self.count(EventResult::Dropped, usize::try_from(dropped).unwrap_or(usize::MAX));
            tracing::error!(dropped, "too many events wait for the control plane; the oldest are told to nobody");
        }
        sent.map(|()| seen == EVENTS_MAX)
    }

    fn count(&self, result: EventResult, events: usize) {
        self.metrics.events.with_label_values(&[result.as_str()]).inc_by(u64::try_from(events).unwrap_or(u64::MAX));
    }

    async fn send(&self, source: &str, events: Vec<Undelivered>) -> Result<(), Failure> {
        let body = OrderEvents { source: source.to_owned(), events: events.into_iter().map(written).collect() };
        let status = self.control_plane.request(Method::POST, ORDER_EVENTS_PATH).json(&body).send().await?.status();
        if status == StatusCode::NO_CONTENT { Ok(()) } else { Err(Failure::Refused(status)) }
    }
}

/// An event as it is handed over.
fn written(event: Undelivered) -> OrderEvent {
    OrderEvent {
        number: event.number,
        project: event.project,
        kind: format!("order.{}", event.kind.as_str()),
        at: event.at,
        order: serde_json::from_str(&event.order).unwrap_or_default(),
    }
}
