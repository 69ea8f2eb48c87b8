//! Moments as text.

use contract::schema::{Schema, SharedSchemas, Value, json};
use contract::time::{UnixMillis, UnixSeconds};
use serde::{Deserialize, Serialize};

/// A moment in RFC 3339, UTC.
pub fn rfc3339(at: UnixMillis) -> String {
    jiff::Timestamp::from_millisecond(at.0).unwrap_or_default().to_string()
}

/// A moment in RFC 3339, UTC.
pub fn rfc3339_seconds(at: UnixSeconds) -> String {
    jiff::Timestamp::from_second(at.0).unwrap_or_default().to_string()
}

/// A moment in RFC 3339, UTC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rfc3339(String);

impl From<UnixMillis> for Rfc3339 {
    fn from(at: UnixMillis) -> Self {
        Self(rfc3339(at))
    }
}

impl From<UnixSeconds> for Rfc3339 {
    fn from(at: UnixSeconds) -> Self {
        Self(rfc3339_seconds(at))
    }
}

impl std::ops::Deref for Rfc3339 {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Schema for Rfc3339 {
    fn schema(_: &mut SharedSchemas) -> Value {
        json!({ "type": "string", "format": "date-time" })
    }
}
