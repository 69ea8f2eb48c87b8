//! Everything the gateway says itself instead of forwarding.

use std::borrow::Cow;

use contract::site::RedirectStatus;
use http::{HeaderValue, header};

use crate::rejection::Rejection;

/// What ends a request before it reaches an upstream.
#[derive(Debug)]
pub enum Answer {
    /// No.
    Refuse(Refusal),
    /// Over there.
    Redirect {
        /// The status the site chose.
        status: RedirectStatus,
        /// The absolute URL.
        location: String,
    },
    /// The proof a certificate authority asked for.
    Challenge(String),
    /// The answer to a browser's preflight: what it may send.
    Preflight {
        /// Methods of the route.
        methods: String,
    },
    /// The answer to OPTIONS of a known path: the methods there are.
    Options {
        /// Methods of the route.
        methods: String,
    },
}

/// A refusal with what this one occasion adds to the catalogue's entry.
#[derive(Debug)]
pub struct Refusal {
    /// The entry.
    pub rejection: Rejection,
    /// A message that knows more than the catalogue's.
    pub message: Option<String>,
    /// Headers that belong to the refusal (`Allow`, `WWW-Authenticate`).
    pub headers: Vec<(header::HeaderName, HeaderValue)>,
    /// Seconds for `Retry-After`.
    pub retry_after_seconds: Option<i64>,
}

impl Refusal {
    /// The plain entry.
    pub fn new(rejection: Rejection) -> Self {
        // A client that may retry is told when: at once is a second for whatever is our fault.
        let retry_after_seconds = matches!(rejection.status(), 502..=504).then_some(1);
        Self { rejection, message: None, headers: Vec::new(), retry_after_seconds }
    }

    /// With a better message.
    #[must_use]
    pub fn saying(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// With a header. A value that cannot be a header value is left out.
    #[must_use]
    pub fn with(mut self, name: header::HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }

    /// With a time to come back.
    #[must_use]
    pub fn retry_after(mut self, seconds: i64) -> Self {
        self.retry_after_seconds = Some(seconds.max(1));
        self
    }

    /// The body the client reads.
    pub fn body(&self) -> Cow<'static, str> {
        let Some(message) = &self.message else { return self.rejection.json().into() };
        let mut body = self.rejection.body();
        body.message.clone_from(message);
        body.to_json().into()
    }
}

impl From<Rejection> for Answer {
    fn from(rejection: Rejection) -> Self {
        Self::Refuse(Refusal::new(rejection))
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self::Refuse(refusal)
    }
}
