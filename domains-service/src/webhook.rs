//! Outgoing webhooks: what happens to a project's domains and orders, told to whom its owner chose.
//!
//! A delivery is written in the transaction of its event (`store::webhooks`), so there is none without the other,
//! whatever crashes. Events of orders come from the service of the orders, which keeps them until they are in this outbox
//! (`store::webhooks::taken`). The worker (`delivery`) makes the attempts; how messages are signed and sent safely is
//! `chassis::webhook`. Deliveries happen at least once: a crash between an attempt and its note repeats the attempt,
//! under the same message id. A receiver that is away is tried for three days, and switched off when it stays away;
//! what it missed is still listed, here and in the project's events.

pub(crate) mod endpoint;
mod message;

pub(crate) use domains_api::types::EVENTS;
pub(crate) use endpoint::{DisabledReason, EndpointRecord, Wanted};
pub(crate) use message::{TEST, compose, compose_order, compose_test};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_that_is_told_is_one_that_the_code_records_and_the_page_describes() {
        let sources = [
            include_str!("reconcile.rs"),
            include_str!("domain/order.rs"),
            include_str!("domain/reconcile.rs"),
            include_str!("reconcile/write.rs"),
            include_str!("api/domains.rs"),
            include_str!("api/changes.rs"),
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
