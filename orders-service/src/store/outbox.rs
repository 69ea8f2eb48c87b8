//! Events that wait to be told: what a store keeps of each until it is handed over.

use contract::project::ProjectUid;
use contract::time::UnixMillis;

use super::EventKind;
use crate::json;
use crate::order::Order;

/// What of the outbox was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// The oldest events, in the order of their numbers.
    pub events: Vec<Undelivered>,
    /// Numbers of events that do not read back as they were written: nobody can be told of them.
    pub damaged: Vec<i64>,
}

impl Waiting {
    /// Adds what a row holds: number, project, event, moment, order, checksum. The checksum covers everything told.
    pub(super) fn add(&mut self, number: i64, project: &str, event: &str, at: i64, order: String, sum: i64) {
        match (event.parse(), project.parse()) {
            (Ok(kind), Ok(project)) if sum == checksum(&project, kind, UnixMillis(at), &order) => {
                self.events.push(Undelivered { number, project, kind, at: UnixMillis(at), order });
            }
            _ => self.damaged.push(number),
        }
    }
}

/// An event that nobody was told of yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    /// Unique in the store; of two events of one order the later has the larger one.
    pub number: i64,
    /// Whose order it is.
    pub project: ProjectUid,
    /// What happened.
    pub kind: EventKind,
    /// When.
    pub at: UnixMillis,
    /// The order right after it, as one line of JSON: a later change must not alter what is told of this one.
    pub order: String,
}

impl Undelivered {
    /// The order as it is kept in the outbox.
    pub(super) fn snapshot(order: &Order) -> String {
        String::from_utf8_lossy(json::lines(std::slice::from_ref(order)).trim_ascii_end()).into_owned()
    }
}

/// CRC-32 over everything that is told.
pub(super) fn checksum(project: &ProjectUid, event: EventKind, at: UnixMillis, order: &str) -> i64 {
    let mut hasher = crc32fast::Hasher::new();
    for text in [project.as_str(), event.as_str(), order] {
        hasher.update(text.as_bytes());
        hasher.update(&[0]);
    }
    hasher.update(&at.0.to_le_bytes());
    i64::from(hasher.finalize())
}
