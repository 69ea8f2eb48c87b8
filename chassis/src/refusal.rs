//! A service's refusal: the error body and its headers.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use contract::error::ErrorBody;

/// An error body to be sent to the client.
#[derive(Clone, Debug)]
pub struct Refusal {
    body: ErrorBody,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Refusal {
    /// A refusal with status, code and a message that says what to do.
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self { body: ErrorBody::new(status, code, message), headers: Vec::new() }
    }

    /// Adds details to the body.
    #[must_use]
    pub fn with_details(mut self, details: serde_json::Value) -> Self {
        self.body.details = Some(details);
        self
    }

    /// Adds a header. An invalid value is omitted: it comes from us, and the body has the same information.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }

    /// The body.
    pub fn body(&self) -> &ErrorBody {
        &self.body
    }
}

/// The code of a refusal, attached to the response for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalCode(pub String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.body.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (
            status,
            [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")],
            self.body.to_json(),
        )
            .into_response();
        response.headers_mut().extend(self.headers);
        response.extensions_mut().insert(RefusalCode(self.body.code));
        response
    }
}
