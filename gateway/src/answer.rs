//! Responses that the gateway writes itself instead of forwarding.

mod page;

use std::borrow::Cow;

use contract::site::RedirectStatus;
use http::{HeaderValue, StatusCode};
use pingora::{ErrorType, OrErr as _};

pub(crate) use self::page::accepts_html;
use crate::decorate::ResponseSink;
use crate::grpc;
use contract::rejection::Rejection;

/// Cacheable redirects are cached for five minutes, so that a changed primary domain takes effect soon.
const REDIRECT_CACHE: &[u8] = b"max-age=300";

/// How long the key set may be cached; a key is published this long before its first use.
const KEY_SET_CACHE: &[u8] = b"max-age=60";

/// How long a browser may cache the answer to a preflight, in seconds.
const PREFLIGHT_MAX_AGE: &[u8] = b"600";

/// The request fields that the answer to a preflight depends on.
const PREFLIGHT_VARY: &[u8] = b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers";

/// An answer that ends a request before it reaches an upstream.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A refusal.
    Refuse(Refusal),
    /// A redirect.
    Redirect {
        /// The status the site chose.
        status: RedirectStatus,
        /// The absolute URL.
        location: String,
    },
    /// The proof that a certificate authority requested.
    Challenge(String),
    /// The public keys of identity tokens.
    KeySet(String),
    /// The gateway's health.
    Health {
        /// Whether requests may be sent here.
        ready: bool,
    },
    /// The answer to a browser's preflight.
    Preflight {
        /// Methods of all routes.
        methods: &'static str,
        /// Fields that the page may send; `None`: its origin is not allowed.
        fields: Option<HeaderValue>,
    },
    /// The answer to OPTIONS of a known path: its methods.
    Options {
        /// Methods of the route.
        methods: String,
    },
}

impl Answer {
    /// The answer to a request that asks for a WebSocket by CONNECT: a status of success would accept it.
    pub(crate) fn without_success(self) -> Self {
        match self {
            Self::Refuse(_) | Self::Redirect { .. } | Self::Health { ready: false } => self,
            Self::Challenge(_)
            | Self::KeySet(_)
            | Self::Health { ready: true }
            | Self::Preflight { .. }
            | Self::Options { .. } => Refusal::new(Rejection::MethodNotAllowed).with("Allow", "GET, HEAD").into(),
        }
    }

    /// Writes the status and its own fields to `out`; returns the body.
    pub(crate) fn write(self, out: &mut impl ResponseSink) -> pingora::Result<(StatusCode, Cow<'static, str>)> {
        let status = match &self {
            Self::Refuse(refusal) => refusal.rejection.status(),
            Self::Redirect { status, .. } => status.code(),
            Self::Health { ready: false } => 503,
            Self::Challenge(_) | Self::KeySet(_) | Self::Health { ready: true } => 200,
            Self::Preflight { .. } | Self::Options { .. } => 204,
        };
        let status = StatusCode::from_u16(status).or_err(ErrorType::InternalError, "a status of our own")?;
        out.status(status, status.canonical_reason().unwrap_or_default())?;
        let body = match self {
            Self::Refuse(refusal) => refusal.write(out)?,
            Self::Redirect { location, .. } => {
                // Clients choose parts of it.
                let location =
                    HeaderValue::try_from(location).or_err(ErrorType::InternalError, "invalid redirect location")?;
                out.field("Location", location.as_bytes())?;
                if matches!(status.as_u16(), 301 | 308) {
                    out.field("Cache-Control", REDIRECT_CACHE)?;
                }
                Cow::Borrowed("")
            }
            Self::Challenge(text) => {
                out.field("Content-Type", b"application/octet-stream")?;
                out.field("Cache-Control", b"no-store")?;
                text.into()
            }
            Self::KeySet(text) => {
                out.field("Content-Type", b"application/jwk-set+json")?;
                out.field("Cache-Control", KEY_SET_CACHE)?;
                text.into()
            }
            Self::Health { ready } => {
                out.field("Content-Type", b"text/plain")?;
                out.field("Cache-Control", b"no-store")?;
                Cow::Borrowed(if ready { "ok\n" } else { "not ready\n" })
            }
            Self::Preflight { methods, fields } => {
                if let Some(fields) = fields {
                    out.field("Access-Control-Allow-Methods", methods.as_bytes())?;
                    out.field("Access-Control-Allow-Headers", fields.as_bytes())?;
                    out.field("Access-Control-Max-Age", PREFLIGHT_MAX_AGE)?;
                }
                out.field("Vary", PREFLIGHT_VARY)?;
                Cow::Borrowed("")
            }
            Self::Options { methods } => {
                out.field("Allow", methods.as_bytes())?;
                Cow::Borrowed("")
            }
        };
        Ok((status, body))
    }
}

/// A refusal: the catalogue's entry, and details of this request.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The entry.
    pub rejection: Rejection,
    /// A message with more details than the catalogue's.
    pub message: Option<String>,
    /// Headers that belong to the refusal (`Allow`, `WWW-Authenticate`).
    pub headers: Vec<(&'static str, HeaderValue)>,
    /// Seconds for `Retry-After`.
    pub retry_after_seconds: Option<i64>,
}

impl Refusal {
    /// Writes the complete refusal for a caller that reads gRPC, or gRPC-Web, of this content type; returns the HTTP
    /// and the gRPC status.
    pub(crate) fn write_grpc(
        &self,
        content_type: &str,
        out: &mut impl ResponseSink,
    ) -> pingora::Result<(StatusCode, u16)> {
        let code = grpc::code(self.rejection);
        out.status(StatusCode::OK, "OK")?;
        out.field("Content-Type", content_type.as_bytes())?;
        out.figure(grpc::STATUS, code)?;
        let message = self.message.as_deref().unwrap_or(self.rejection.message());
        out.field(grpc::MESSAGE, grpc::encoded(message).as_bytes())?;
        if let Some(seconds) = self.retry_after_seconds {
            out.figure("Retry-After", seconds)?;
        }
        for (name, value) in &self.headers {
            out.field(name, value.as_bytes())?;
        }
        Ok((StatusCode::OK, code))
    }

    /// The catalogue's entry without details.
    pub(crate) fn new(rejection: Rejection) -> Self {
        // A client that may retry gets a time: one second for our own faults.
        let retry_after_seconds = matches!(rejection.status(), 502..=504).then_some(1);
        Self { rejection, message: None, headers: Vec::new(), retry_after_seconds }
    }

    /// Replaces the message.
    #[must_use]
    pub(crate) fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Adds a header. An invalid value is omitted.
    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }

    /// Sets `Retry-After`.
    #[must_use]
    pub(crate) fn retry_after(mut self, seconds: i64) -> Self {
        self.retry_after_seconds = Some(seconds.max(1));
        self
    }

    fn write(&self, out: &mut impl ResponseSink) -> pingora::Result<Cow<'static, str>> {
        self.write_fields("application/json", out)?;
        Ok(self.body())
    }

    fn write_fields(&self, content_type: &str, out: &mut impl ResponseSink) -> pingora::Result<()> {
        out.field("Content-Type", content_type.as_bytes())?;
        out.field("Cache-Control", b"no-store")?;
        if let Some(seconds) = self.retry_after_seconds {
            out.figure("Retry-After", seconds)?;
        }
        for (name, value) in &self.headers {
            out.field(name, value.as_bytes())?;
        }
        Ok(())
    }

    /// The body for the client.
    pub(crate) fn body(&self) -> Cow<'static, str> {
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
