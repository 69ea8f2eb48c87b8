//! Headers every response carries, whoever wrote it.
//!
//! pingora skips `response_filter` when the gateway answers by itself, so [`decorate`] has two callers: the filter for
//! forwarded responses and the writer of answers.

use http::HeaderValue;
use http::header::{self, HeaderName};
use pingora::http::ResponseHeader;

use crate::facts::{Facts, Shown, Surface};

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What a web page's script may read of a response (Fetch standard, section 3.2.5).
const EXPOSED: &str = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After, RateLimit, \
     RateLimit-Policy, Deprecation, Sunset, Link, X-Request-Id, ETag";

/// One year; applies to the host itself, since what lies below it may belong to others.
const HSTS: &str = "max-age=31536000";

/// Fields that only the gateway may speak; whatever an upstream sends under these names is dropped.
const OURS: &[&str] = &[
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "ratelimit-policy",
    "ratelimit",
    "x-request-id",
    "tollhouse-identity",
];

/// Adds what every response of this surface carries and removes what an upstream may not say.
///
/// # Errors
/// Only if a value made of digits is no header value.
pub fn decorate(response: &mut ResponseHeader, facts: &Facts, is_tls: bool) -> pingora::Result<()> {
    for name in OURS {
        response.remove_header(*name);
    }
    response.remove_header(&header::SERVER);
    response.insert_header(REQUEST_ID, facts.request_id.as_str())?;
    let is_api = facts.surface == Surface::Api;
    if is_api {
        response.insert_header(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"))?;
        response.insert_header(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED))?;
        response.insert_header(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))?;
        // RFC 6797 section 7.2: never over plain HTTP.
        if is_tls {
            response.insert_header(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(HSTS))?;
        }
    }
    if let (true, Some(shown)) = (is_api, facts.shown) {
        limits(response, shown)?;
    }
    Ok(())
}

fn limits(response: &mut ResponseHeader, shown: Shown) -> pingora::Result<()> {
    let trio = shown.standing.trio(shown.outcome);
    response.insert_header(LIMIT, HeaderValue::from(trio.limit))?;
    response.insert_header(REMAINING, HeaderValue::from(trio.remaining))?;
    response.insert_header(RESET, HeaderValue::from(trio.reset))?;
    response.insert_header(POLICY, shown.standing.policy_field())?;
    response.insert_header(RATELIMIT, shown.standing.ratelimit_field(shown.outcome))?;
    Ok(())
}
