//! Events that services send to the control plane, which delivers them to a project's webhooks.
//!
//! `POST /internal/events/orders` with [`OrderEvents`], answered 204 when all of them are on the control plane's disk.
//! An event has a unique number within its source, so that sending it twice delivers it once.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::project::ProjectUid;
use crate::time::UnixMillis;

/// The path on the control plane's internal listener for events of orders.
pub const ORDER_EVENTS_PATH: &str = "/internal/events/orders";

/// Events in one request.
pub const EVENTS_MAX: usize = 200;

/// Bytes of one request: an order's event has about 400 bytes.
pub const EVENTS_BYTES_MAX: usize = 256 * 1_024;

/// The longest name of a source, in bytes.
pub const SOURCE_BYTES_MAX: usize = 64;

/// The kinds of order events.
pub const ORDER_EVENTS: [&str; 3] = ["order.created", "order.shipped", "order.cancelled"];

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderEvents {
    /// The database in which the events happened: letters, digits, `-` and `_`. Numbers are unique within it.
    pub source: String,
    /// At most [`EVENTS_MAX`], the oldest first.
    pub events: Vec<OrderEvent>,
}

/// An event of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderEvent {
    /// Its number within the source; later events have larger ones.
    pub number: i64,
    /// The identity of the order's project.
    pub project: ProjectUid,
    /// One of [`ORDER_EVENTS`].
    pub kind: String,
    /// When it happened.
    pub at: UnixMillis,
    /// The order right after the event, as `/v2` represents it.
    pub order: Value,
}

impl OrderEvents {
    /// Whether every field is within its bounds.
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
    fn fields_out_of_bounds_are_not_sound() {
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
