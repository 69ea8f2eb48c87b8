//! Outgoing webhooks: events of a project's domains and orders, sent to the endpoints of its owner.
//!
//! A delivery is written in the transaction of its event (`store::webhooks`), so a crash cannot separate them. Events
//! of orders come from the orders-service, which keeps them until they are in this outbox (`store::webhooks::taken`).
//! The worker (`delivery`) makes the attempts; `chassis::webhook` signs and sends messages safely. Deliveries happen at
//! least once: after a crash between an attempt and its record the attempt is repeated, with the same message id. An
//! unreachable receiver is tried for three days and then disabled; its undelivered events are listed here and in the
//! project's events.

pub(crate) mod endpoint;
mod message;

pub(crate) use domains_api::types::EVENTS;
pub(crate) use endpoint::{DisabledReason, EndpointRecord, Wanted};
pub(crate) use message::{TEST, compose, compose_order, compose_test};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_webhook_event_is_recorded_by_the_code_and_described_on_the_page() {
        let sources = [
            include_str!("reconcile.rs"),
            include_str!("domain/order.rs"),
            include_str!("domain/reconcile.rs"),
            include_str!("api/domains/add.rs"),
            include_str!("api/domains/change.rs"),
            include_str!("../../contract/src/event.rs"),
        ];
        let page = include_str!("../../docs/tenant/webhooks.md");
        for event in EVENTS {
            let literal = format!("\"{event}\"");
            assert!(sources.iter().any(|source| source.contains(&literal)), "nothing records {event}");
            assert!(page.contains(&format!("| `{event}` |")), "docs/tenant/webhooks.md does not describe {event}");
        }
    }
}
