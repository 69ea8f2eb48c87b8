//! Events that other services relay, on their way into the outbox.

use chassis::sql::query;
use contract::event::OrderEvent;
use contract::time::UnixMillis;

use super::super::projects::find_ref;
use super::super::{Result, Write};
use super::address::{Outgoing, deliver_to, who_wants};
use crate::webhook::compose_order;

/// Events per transaction. With 20 endpoints they are 500 deliveries: other writers wait a fraction of a second.
pub(crate) const EVENTS_PER_WRITE: usize = 25;

/// Puts each event of a source into the outbox of every subscribed endpoint, unless an earlier relay did. An event
/// without a subscriber leaves no trace.
pub(crate) async fn take(write: &mut Write, source: &str, events: &[OrderEvent]) -> Result<()> {
    for event in events {
        // Events of a project that was removed meanwhile are dropped.
        let Some(project) = find_ref(write.connection(), &event.project).await? else { continue };
        let endpoints = who_wants(write, &project, &event.kind).await?;
        if endpoints.is_empty() || !is_new(write, source, event).await? {
            continue;
        }
        let message = Outgoing {
            id: format!("msg_{source}_{:x}", event.number),
            kind: &event.kind,
            body: compose_order(&project, event),
        };
        deliver_to(write, &project, endpoints, &message).await?;
    }
    Ok(())
}

/// Stores the event's number; returns whether it is new.
async fn is_new(write: &mut Write, source: &str, event: &OrderEvent) -> Result<bool> {
    let now = write.now();
    let noted = query(
        "INSERT INTO taken_events (source, number, taken_at) VALUES ($1, $2, $3) ON CONFLICT (source, number) DO NOTHING",
    );
    let noted = noted.bind((source, event.number, now.0)).execute(write.connection()).await?;
    Ok(noted.rows_affected() > 0)
}

/// Deletes numbers stored before `before`: no service relays them again by then.
pub(crate) async fn forget_taken(write: &mut Write, before: UnixMillis) -> Result<()> {
    query("DELETE FROM taken_events WHERE taken_at < $1").bind(before.0).run(write.connection()).await
}
