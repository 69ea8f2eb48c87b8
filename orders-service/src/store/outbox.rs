//! Undelivered events: their data in the outbox.

use contract::project::ProjectUid;
use contract::time::UnixMillis;

use super::EventKind;
use crate::json;
use crate::order::Order;

/// A batch of the outbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// The oldest events, in the order of their numbers.
    pub events: Vec<Undelivered>,
    /// Numbers of events with a wrong checksum; they cannot be delivered.
    pub damaged: Vec<i64>,
}

impl Waiting {
    /// Adds a row: number, project, event, time, order, checksum. The checksum covers everything that is delivered.
    pub(super) fn add(&mut self, number: i64, project: &str, event: &str, at: i64, order: String, sum: i64) {
        match (event.parse(), project.parse()) {
            (Ok(kind), Ok(project)) if sum == checksum(&project, kind, UnixMillis(at), &order) => {
                self.events.push(Undelivered { number, project, kind, at: UnixMillis(at), order });
            }
            _ => self.damaged.push(number),
        }
    }
}

/// An undelivered event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    /// Unique in the store; a later event of an order has a larger number.
    pub number: i64,
    /// Project of the order.
    pub project: ProjectUid,
    /// Kind of the change.
    pub kind: EventKind,
    /// Time of the change.
    pub at: UnixMillis,
    /// The order right after the change, as one line of JSON; later changes do not alter it.
    pub order: String,
}

impl Undelivered {
    /// The order as stored in the outbox.
    pub(super) fn snapshot(order: &Order) -> String {
        String::from_utf8_lossy(json::lines(std::slice::from_ref(order)).trim_ascii_end()).into_owned()
    }
}

/// CRC-32 of everything that is delivered.
pub(super) fn checksum(project: &ProjectUid, event: EventKind, at: UnixMillis, order: &str) -> i64 {
    let mut hasher = crc32fast::Hasher::new();
    for text in [project.as_str(), event.as_str(), order] {
        hasher.update(text.as_bytes());
        hasher.update(&[0]);
    }
    hasher.update(&at.0.to_le_bytes());
    i64::from(hasher.finalize())
}
