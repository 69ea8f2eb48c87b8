//! Outbox relay: sends the events of orders to the control plane, which sends them to the project's webhooks.
//!
//! The transaction that changes an order also writes its event to the store's outbox. The event stays there until the
//! control plane has stored it, so a crash on either side loses no event. The control plane recognises a repeated event
//! by its number and sends each one once. The relay is a separate task: requests do not wait for the control plane.
//! While the control plane is unreachable, events wait; above [`UNDELIVERED_MAX`] the oldest are dropped and counted.
//! The order's history still lists them.

use std::time::Duration;

use contract::event::{EVENTS_MAX, ORDER_EVENTS_PATH, OrderEvent, OrderEvents};
use reqwest::{Method, StatusCode};

use crate::control_plane::{ControlPlane, Failure, PeriodicTask};
use crate::metrics::{EventResult, Metrics};
use crate::orders::Orders;
use crate::store::{Undelivered, Waiting};

/// Largest number of undelivered events: about 40 MB on disk.
pub(crate) const UNDELIVERED_MAX: u32 = 100_000;

/// Interval between reads of an empty outbox.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Events read at once.
#[expect(clippy::cast_possible_truncation, reason = "the number is a few hundred")]
const LIMIT: u32 = EVENTS_MAX as u32;

/// The task that sends events to the control plane.
pub(crate) struct OutboxRelay {
    pub(crate) orders: Orders,
    pub(crate) metrics: Metrics,
    pub(crate) control_plane: ControlPlane,
}

impl PeriodicTask for OutboxRelay {
    const FAILED: &'static str =
        "cannot send order events to the control plane; keeping them in the outbox and retrying";
    const RECOVERED: &'static str = "sending order events to the control plane again";

    async fn round(&self) -> Result<Duration, Failure> {
        Ok(if self.relay_batch().await? { Duration::ZERO } else { POLL_INTERVAL })
    }
}

impl OutboxRelay {
    /// Sends one batch. Returns whether more events may wait.
    async fn relay_batch(&self) -> Result<bool, Failure> {
        let store = self.orders.store();
        let Waiting { events, damaged } = store.undelivered(LIMIT).await?;
        self.metrics.events_oldest.set(events.first().map_or(0, |event| event.at.to_seconds().0));
        let seen = events.len() + damaged.len();
        if seen == 0 {
            return Ok(false);
        }
        for number in &damaged {
            tracing::error!(event = number, "dropped a damaged event from the outbox; no webhook receives it");
        }
        self.count(EventResult::Damaged, damaged.len());
        let (mut done, numbers) = (damaged, events.iter().map(|event| event.number).collect::<Vec<_>>());
        let sent = if events.is_empty() { Ok(()) } else { self.send(store.store_id(), events).await };
        if sent.is_ok() {
            self.count(EventResult::Relayed, numbers.len());
            done.extend(numbers);
        }
        // The bound also holds while the control plane is unreachable.
        let dropped = store.forget(done, UNDELIVERED_MAX).await?;
        if dropped > 0 {
            self.count(EventResult::Dropped, usize::try_from(dropped).unwrap_or(usize::MAX));
            tracing::error!(
                dropped,
                undelivered_max = UNDELIVERED_MAX,
                "dropped the oldest order events: the outbox is full; no webhook receives them; check the control plane"
            );
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

/// The event in the form that the control plane expects.
fn written(event: Undelivered) -> OrderEvent {
    OrderEvent {
        number: event.number,
        project: event.project,
        kind: format!("order.{}", event.kind.as_str()),
        at: event.at,
        order: serde_json::from_str(&event.order).unwrap_or_default(),
    }
}
