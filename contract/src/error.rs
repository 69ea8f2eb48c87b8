//! The error body of every refusal (specification, section 2).

use serde::{Deserialize, Serialize};

/// `{"code","message","status"}`: machine-readable code, human-readable description, HTTP status.
///
/// Only the domains API uses `details` (lists of problems, lagging nodes); everywhere else the body has exactly the
/// three fields of the specification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// Machine-readable error code, one of `docs/reference/errors.md`.
    pub code: String,
    /// Human-readable description with the next step.
    pub message: String,
    /// The HTTP status code, repeated so that a logged body is complete.
    pub status: u16,
    /// Additional data, for the codes that document it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<serde_json::Value>,
}

impl ErrorBody {
    /// A body with the three fields of the specification.
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), status, details: None }
    }

    /// The body as JSON text. Never fails: strings and a number always serialise.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| {
            format!(
                r#"{{"code":"internal_error","message":"The error could not be written.","status":{}}}"#,
                self.status
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // rule: 2.8, 2.9, 2.10, 7.1
    #[test]
    fn the_body_has_exactly_the_three_fields_of_the_specification() {
        let body = ErrorBody::new(404, "order_not_found", "No order has this id.");
        assert_eq!(body.to_json(), r#"{"code":"order_not_found","message":"No order has this id.","status":404}"#);
    }
}
