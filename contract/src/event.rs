//! Events on their way to the control plane, which tells them to whom a project's owner chose.
//!
//! `POST /internal/events/orders` with [`OrderEvents`], answered 204 when all of them are on the control plane's disk.
//! An event has a number of its own within its source, so that handing it over twice tells it once.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::project::ProjectUid;
use crate::time::UnixMillis;

/// The path of the control plane's internal listener that takes events of orders.
pub const ORDER_EVENTS_PATH: &str = "/internal/events/orders";

/// Events handed over at once.
pub const EVENTS_MAX: usize = 200;

/// Bytes of one hand-over: an order's event is some 400 bytes.
pub const EVENTS_BYTES_MAX: usize = 256 * 1_024;

/// The longest name of a source, in bytes.
pub const SOURCE_BYTES_MAX: usize = 64;

/// The kinds of events that orders have.
pub const ORDER_EVENTS: [&str; 3] = ["order.created", "order.shipped", "order.cancelled"];

/// One hand-over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderEvents {
    /// The database that the events happened in: letters, digits, `-` and `_`. Numbers are unique within it.
    pub source: String,
    /// At most [`EVENTS_MAX`], the oldest first.
    pub events: Vec<OrderEvent>,
}

/// Something that happened to an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderEvent {
    /// Its number within the source; later events have larger ones.
    pub number: i64,
    /// Whose order it is: the project's identity.
    pub project: ProjectUid,
    /// One of [`ORDER_EVENTS`].
    pub kind: String,
    /// When it happened.
    pub at: UnixMillis,
    /// The order as it was right after, in the words of `/v2`.
    pub order: Value,
}

impl OrderEvents {
    /// Whether everything is within its bounds.
    pub fn is_sound(&self) -> bool {
        let letters = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=SOURCE_BYTES_MAX).contains(&self.source.len())
            && self.source.bytes().all(letters)
            && self.events.len() <= EVENTS_MAX
            && self.events.iter().all(|event| ORDER_EVENTS.contains(&event.kind.as_str()) && event.order.is_object())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event() -> OrderEvent {
        OrderEvent {
            number: 7,
            project: "demo".parse().unwrap(),
            kind: "order.shipped".to_owned(),
            at: UnixMillis(5),
            order: json!({ "id": 1, "status": "shipped" }),
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_not_sound() {
        let sound = OrderEvents { source: "ab12".to_owned(), events: vec![event()] };
        assert!(sound.is_sound());
        let text = r#"{"source":"ab12","events":[{"number":7,"project":"demo","kind":"order.shipped","at":5,"order":{"id":1,"status":"shipped"}}]}"#;
        assert_eq!(serde_json::to_string(&sound).unwrap(), text, "as other versions read it");
        assert_eq!(serde_json::from_str::<OrderEvents>(text).unwrap(), sound);
        for source in ["", "a b", "a.b", "ä", &"a".repeat(SOURCE_BYTES_MAX + 1)] {
            assert!(!OrderEvents { source: source.to_owned(), ..sound.clone() }.is_sound(), "{source:?}");
        }
        let of = |events| OrderEvents { source: "ab12".to_owned(), events };
        assert!(!of(vec![OrderEvent { kind: "domain.created".to_owned(), ..event() }]).is_sound());
        assert!(!of(vec![OrderEvent { order: json!([]), ..event() }]).is_sound());
        assert!(of(vec![event(); EVENTS_MAX]).is_sound());
        assert!(!of(vec![event(); EVENTS_MAX + 1]).is_sound());
    }
}
