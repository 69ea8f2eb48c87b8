//! Headers every response carries, whoever wrote it.
//!
//! pingora skips `response_filter` when the gateway answers by itself, so [`decorate`] has two callers: the filter for
//! forwarded responses and the writer of answers.

use http::HeaderValue;
use http::header::{self, HeaderName};
use pingora::http::ResponseHeader;

use crate::facts::{Facts, Shown, Surface};

// Text, not `HeaderName`: pingora writes these names to HTTP/1 clients in the spelling of the specification.
const LIMIT: &str = "X-RateLimit-Limit";
const REMAINING: &str = "X-RateLimit-Remaining";
const RESET: &str = "X-RateLimit-Reset";
const POLICY: &str = "RateLimit-Policy";
const RATELIMIT: &str = "RateLimit";
const REQUEST_ID: &str = "X-Request-Id";

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

/// Fields that concern the connection to the upstream alone (RFC 9110 section 7.6.1). `Connection` and
/// `Transfer-Encoding` are the proxy library's, which writes its own.
const HOP_BY_HOP: &[&str] = &["keep-alive", "proxy-connection", "te", "trailer", "upgrade"];

/// Fields that say where a response ends: an upstream that names them in `Connection` is not believed.
const FRAMING: &[&str] = &["connection", "content-length", "transfer-encoding"];

/// Adds what every response of this surface carries and removes what an upstream may not say.
///
/// # Errors
/// Only if a value made of digits is no header value.
pub fn decorate(response: &mut ResponseHeader, facts: &Facts, is_tls: bool) -> pingora::Result<()> {
    remove_foreign(response);
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

/// Removes what an upstream may not say. Looks at each field once: of most responses nothing is to be removed.
fn remove_foreign(response: &mut ResponseHeader) {
    // A switch of protocols is the one thing two connections agree on through us.
    let ends_here = response.status != http::StatusCode::SWITCHING_PROTOCOLS;
    let nominated = if ends_here { nominated(response) } else { Vec::new() };
    let foreign = |name: &str| {
        matches!(name.as_bytes().first(), Some(b'x' | b'r' | b't' | b's'))
            && (OURS.contains(&name) || name == header::SERVER.as_str())
            || ends_here && (HOP_BY_HOP.contains(&name) || nominated.iter().any(|other| other == name))
    };
    let names: Vec<HeaderName> = response.headers.keys().filter(|name| foreign(name.as_str())).cloned().collect();
    for name in &names {
        response.remove_header(name);
    }
}

/// Fields that `Connection` names (RFC 9110 section 7.6.1).
fn nominated(response: &ResponseHeader) -> Vec<String> {
    let values = response.headers.get_all(header::CONNECTION).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(|name| name.trim().to_ascii_lowercase()))
        .filter(|name| !FRAMING.contains(&name.as_str()))
        .collect()
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
