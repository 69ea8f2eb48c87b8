//! Headers every response carries, whoever wrote it.
//!
//! pingora skips `response_filter` when the gateway answers by itself, so [`decorate`] has two callers: the filter for
//! forwarded responses and the writer of answers. What is forwarded without pingora takes [`ours`] and [`is_foreign`].

use http::HeaderValue;
use http::header::{self, HeaderName};
use pingora::http::ResponseHeader;
use pingora::{ErrorType, OrErr as _};

use crate::facts::{Facts, Shown, Surface};

// Text, not `HeaderName`: pingora writes these names to HTTP/1 clients in the spelling of the specification.
const LIMIT: &str = "X-RateLimit-Limit";
const REMAINING: &str = "X-RateLimit-Remaining";
const RESET: &str = "X-RateLimit-Reset";
const POLICY: &str = "RateLimit-Policy";
const RATELIMIT: &str = "RateLimit";
const REQUEST_ID: &str = "X-Request-Id";
const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";
const EXPOSE_HEADERS: &str = "Access-Control-Expose-Headers";
const CONTENT_TYPE_OPTIONS: &str = "X-Content-Type-Options";
const TRANSPORT_SECURITY: &str = "Strict-Transport-Security";

/// On an API these are said by the edge, whatever its upstream says. The last one over TLS alone, where it is heard.
const OURS_ON_THE_API: &[&str] = &[ALLOW_ORIGIN, EXPOSE_HEADERS, CONTENT_TYPE_OPTIONS, TRANSPORT_SECURITY];

/// What a web page's script may read of a response (Fetch standard, section 3.2.5).
const EXPOSED: &str = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After, RateLimit, \
     RateLimit-Policy, Deprecation, Sunset, Link, X-Request-Id, ETag";

/// One year; applies to the host itself, since what lies below it may belong to others.
const HSTS: &str = "max-age=31536000";

/// Fields that only the gateway may speak, and `Server`, which nobody does; what an upstream sends under these names is
/// dropped.
const OURS: &[&str] = &[
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "ratelimit-policy",
    "ratelimit",
    "x-request-id",
    "tollhouse-identity",
    "server",
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
    ours(facts, is_tls, |name, value| response.insert_header(name, value))
}

/// What every response of this surface carries, field by field.
///
/// # Errors
/// Those of `say`, and if a value made of digits is no header value.
pub fn ours(
    facts: &Facts,
    is_tls: bool,
    mut say: impl FnMut(&'static str, HeaderValue) -> pingora::Result<()>,
) -> pingora::Result<()> {
    say(REQUEST_ID, value(facts.request_id.as_str())?)?;
    if facts.surface != Surface::Api {
        return Ok(());
    }
    say(ALLOW_ORIGIN, HeaderValue::from_static("*"))?;
    say(EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED))?;
    say(CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))?;
    // RFC 6797 section 7.2: never over plain HTTP.
    if is_tls {
        say(TRANSPORT_SECURITY, HeaderValue::from_static(HSTS))?;
    }
    let Some(Shown { standing, outcome }) = facts.shown else { return Ok(()) };
    let trio = standing.trio(outcome);
    say(LIMIT, HeaderValue::from(trio.limit))?;
    say(REMAINING, HeaderValue::from(trio.remaining))?;
    say(RESET, HeaderValue::from(trio.reset))?;
    say(POLICY, value(&standing.policy_field())?)?;
    say(RATELIMIT, value(&standing.ratelimit_field(outcome))?)
}

fn value(text: &str) -> pingora::Result<HeaderValue> {
    HeaderValue::from_str(text).or_err(ErrorType::InternalError, "a header value of our own")
}

/// Whether a field of an upstream's response stays behind: it is ours to say, concerns that connection alone, or is about
/// to be said by [`ours`]. For responses that switch no protocols.
pub fn is_foreign(name: &str, facts: &Facts) -> bool {
    is_ours(name) || is_hop_by_hop(name) || facts.surface == Surface::Api && is_among(name, b"axs", OURS_ON_THE_API)
}

fn is_ours(name: &str) -> bool {
    is_among(name, b"xrts", OURS)
}

fn is_hop_by_hop(name: &str) -> bool {
    is_among(name, b"kptu", HOP_BY_HOP)
}

/// Whether it is one of these names, in any spelling. Most are told apart by their first letter.
fn is_among(name: &str, first_letters: &[u8], names: &[&str]) -> bool {
    name.as_bytes().first().is_some_and(|letter| first_letters.contains(&letter.to_ascii_lowercase()))
        && names.iter().any(|other| other.eq_ignore_ascii_case(name))
}

/// Removes what an upstream may not say. Looks at each field once: of most responses nothing is to be removed.
fn remove_foreign(response: &mut ResponseHeader) {
    // A switch of protocols is the one thing two connections agree on through us.
    let ends_here = response.status != http::StatusCode::SWITCHING_PROTOCOLS;
    let nominated = if ends_here { nominated(response) } else { Vec::new() };
    let foreign =
        |name: &str| is_ours(name) || ends_here && (is_hop_by_hop(name) || nominated.iter().any(|other| other == name));
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
