//! The message for a receiver: the event as JSON, the same bytes in every attempt.

use crate::project::ProjectRef;
use crate::text::rfc3339;
use contract::event::OrderEvent;
use contract::hostname::Hostname;
use contract::time::UnixMillis;
use serde_json::{Value, json};

/// The type of messages that its owner sends to try the receiver.
pub(crate) const TEST: &str = "webhook.test";

/// The body for an event. `id` is the event's number: it grows, so a receiver can put events in order.
pub(crate) fn compose(
    project: &ProjectRef,
    domain: Option<&Hostname>,
    kind: &str,
    detail: &Value,
    id: i64,
    at: UnixMillis,
) -> String {
    let data = json!({ "event_id": id, "project_id": project, "domain": domain, "detail": detail });
    message(kind, at, &data)
}

/// The body for an order's event. `event_id` is the event's number in the orders store.
pub(crate) fn compose_order(project: &ProjectRef, event: &OrderEvent) -> String {
    let data = json!({ "event_id": event.number, "project_id": project, "order": event.order });
    message(&event.kind, event.at, &data)
}

/// The body of a test message, with which an owner tests the receiver.
pub(crate) fn compose_test(project: &ProjectRef, webhook: &str, at: UnixMillis) -> String {
    message(TEST, at, &json!({ "project_id": project, "webhook": webhook }))
}

fn message(kind: &str, at: UnixMillis, data: &Value) -> String {
    json!({ "type": kind, "timestamp": rfc3339(at), "data": data }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_shape_of_the_specification() {
        let (project, domain) = ("demo".parse().unwrap(), "shop.example.com".parse().unwrap());
        let at = UnixMillis(1_781_481_600_000);
        let body = compose(&project, Some(&domain), "domain.active", &json!({ "to": "active" }), 7, at);
        let read: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            read,
            json!({
                "type": "domain.active",
                "timestamp": "2026-06-15T00:00:00Z",
                "data": {
                    "event_id": 7,
                    "project_id": "demo",
                    "domain": "shop.example.com",
                    "detail": { "to": "active" },
                },
            })
        );
    }
}
