//! Headers that the gateway adds to every response, and headers of an upstream that stay ([`PresentFields`]).
//!
//! [`add_fields`] adds fields, [`is_removed`] selects those to remove, and [`HostCookies`] limits cookies to their host.

use http::StatusCode;
use pingora::protocols::http::date;

use crate::facts::{Facts, QuotaFigures, Surface};
use upstreams::{AllowedOrigin, Hsts};

// Text, not `HeaderName`: HTTP/1 clients see these names in the specification's spelling.
const LIMIT: &str = "X-RateLimit-Limit";
const REMAINING: &str = "X-RateLimit-Remaining";
const RESET: &str = "X-RateLimit-Reset";
const POLICY: &str = "RateLimit-Policy";
const RATELIMIT: &str = "RateLimit";
const REQUEST_ID: &str = "X-Request-Id";
const DATE: &str = "Date";
/// Prefix of the CORS fields.
const CORS_FAMILY: &str = "Access-Control-";
const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";
const EXPOSE_HEADERS: &str = "Access-Control-Expose-Headers";
const CONTENT_TYPE_OPTIONS: &str = "X-Content-Type-Options";
const TRANSPORT_SECURITY: &str = "Strict-Transport-Security";

/// The response headers that a web page's script may read (Fetch standard, section 3.2.5).
const EXPOSED: &str = "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After, RateLimit, \
     RateLimit-Policy, Deprecation, Sunset, Link, X-Request-Id, ETag, Location, Idempotency-Replayed, X-API-Stability";

/// Those of a gRPC-Web call too: without a message in the response, its status is in the head.
const EXPOSED_OF_GRPC: &str = ", grpc-status, grpc-message, grpc-status-details-bin";

/// One year; only for the host itself, since subdomains may belong to others.
const HSTS: &str = "max-age=31536000";

/// Fields that only the gateway may set on an API, and `Server`, which is always removed there. Those of an upstream
/// are dropped. A site keeps its own.
const OURS_ON_AN_API: &[&str] = &[
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "ratelimit-policy",
    "ratelimit",
    "x-request-id",
    "x-content-type-options",
    "server",
    "date",
];

/// Removed on every surface.
const IDENTITY: &str = contract::token::IDENTITY_TOKEN_HEADER;

/// The head of a response while it is written.
pub(crate) trait ResponseSink: Send {
    /// Writes the first line.
    ///
    /// # Errors
    /// If it is invalid.
    fn status(&mut self, status: StatusCode, reason: &str) -> pingora::Result<()>;

    /// Writes a field.
    ///
    /// # Errors
    /// If it is invalid.
    fn field(&mut self, name: &str, value: &[u8]) -> pingora::Result<()>;

    /// Writes a field with a number.
    fn figure(&mut self, name: &str, value: impl itoa::Integer) -> pingora::Result<()> {
        self.field(name, itoa::Buffer::new().format(value).as_bytes())
    }
}

/// Fields that an upstream has set itself, so that the gateway does not.
#[expect(clippy::struct_excessive_bools, reason = "five fields of a response, each there or not")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PresentFields {
    /// CORS: its fields stay together.
    cors: bool,
    /// HSTS.
    transport_security: bool,
    /// The request id, on a site.
    request_id: bool,
    /// `Date`, on a site.
    date: bool,
    /// The upstream refuses the gateway's identity token.
    identity_refused: bool,
}

impl PresentFields {
    /// Records a field, in any spelling. The first letter distinguishes most of them.
    pub(crate) fn record(&mut self, name: &str) {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        match name.as_bytes().first() {
            Some(b'a' | b'A') => {
                self.cors |= name.get(..CORS_FAMILY.len()).is_some_and(|start| start.eq_ignore_ascii_case(CORS_FAMILY));
            }
            Some(b's' | b'S') => self.transport_security |= is(TRANSPORT_SECURITY),
            Some(b'x' | b'X') => self.request_id |= is(REQUEST_ID),
            Some(b'd' | b'D') => self.date |= is(DATE),
            Some(b't' | b'T') => self.identity_refused |= is(contract::token::IDENTITY_REFUSED_HEADER),
            _ => {}
        }
    }

    /// Whether the upstream refuses the gateway, not the caller.
    pub(crate) fn refuses_identity(self, status: StatusCode) -> bool {
        self.identity_refused && status == StatusCode::UNAUTHORIZED
    }
}

/// Writes the fields that every response of this surface has, except those already set (`present`).
pub(crate) fn add_fields(
    facts: &Facts,
    is_tls: bool,
    present: PresentFields,
    out: &mut impl ResponseSink,
) -> pingora::Result<()> {
    let is_api = facts.surface == Surface::Api;
    if is_api || !present.date {
        out.field(DATE, date::get_cached_date().as_bytes())?;
    }
    if is_api || !present.request_id {
        out.field(REQUEST_ID, facts.request_id.as_str().as_bytes())?;
    }
    if !is_api && facts.surface != Surface::Site {
        return Ok(());
    }
    if !present.cors {
        allow_origin(&facts.caller.allowed_origin, facts.connection.grpc_web.is_some(), out)?;
    }
    // RFC 6797 section 7.2: never over plain HTTP.
    let own = facts.project.as_ref().and_then(|project| project.browsers.hsts);
    let hsts = own.or_else(|| facts.upstream.configured.as_ref().map(|upstream| upstream.settings.hsts));
    if hsts == Some(Hsts::On) && is_tls && !present.transport_security {
        out.field(TRANSPORT_SECURITY, HSTS.as_bytes())?;
    }
    if !is_api {
        return Ok(());
    }
    out.field(CONTENT_TYPE_OPTIONS, b"nosniff")?;
    let Some(QuotaFigures { allowances, outcome }) = facts.quota.figures else { return Ok(()) };
    let headers = allowances.rate_limit_headers(outcome);
    out.figure(LIMIT, headers.limit)?;
    out.figure(REMAINING, headers.remaining)?;
    out.figure(RESET, headers.reset)?;
    out.field(POLICY, allowances.policy_field().as_bytes())?;
    out.field(RATELIMIT, allowances.ratelimit_field(outcome).as_bytes())
}

/// Writes who may read the response.
fn allow_origin(allowed: &AllowedOrigin, is_grpc_web: bool, out: &mut impl ResponseSink) -> pingora::Result<()> {
    match allowed {
        AllowedOrigin::Unset => return Ok(()),
        AllowedOrigin::Any => out.field(ALLOW_ORIGIN, b"*")?,
        AllowedOrigin::One(origin) => {
            out.field(ALLOW_ORIGIN, origin.as_bytes())?;
            out.field("Vary", b"Origin")?;
        }
        AllowedOrigin::NotAllowed => return out.field("Vary", b"Origin"),
    }
    if is_grpc_web {
        return out.field(EXPOSE_HEADERS, &[EXPOSED, EXPOSED_OF_GRPC].concat().into_bytes());
    }
    out.field(EXPOSE_HEADERS, EXPOSED.as_bytes())
}

/// Whether a field of an upstream's response is removed because it is the gateway's.
pub(crate) fn is_removed(name: &str, facts: &Facts) -> bool {
    is_among(name, b"t", &[IDENTITY]) || facts.surface == Surface::Api && is_among(name, b"xrsd", OURS_ON_AN_API)
}

/// Whether it is one of these names, in any spelling. The first letter distinguishes most of them.
fn is_among(name: &str, first_letters: &[u8], names: &[&str]) -> bool {
    name.as_bytes().first().is_some_and(|letter| first_letters.contains(&letter.to_ascii_lowercase()))
        && names.iter().any(|other| other.eq_ignore_ascii_case(name))
}

const SET_COOKIE: &str = "set-cookie";
const DOMAIN: &[u8] = b"domain";

/// Cookies of the platform's hosts stay with the host that sets them.
///
/// All projects share the platform's domain. A cookie with that domain in `Domain` would reach the dashboard, the API
/// and every other project, so the attribute is removed there, whatever its value: browsers disagree about spellings of
/// one domain. A customer's own domain keeps its cookies unchanged. Scripts of a page set cookies without a response;
/// only the Public Suffix List stops those (SECURITY.md).
///
/// Writes a head to `out` without the `Domain` of its cookies if `is_shared` says that others use that domain. It is
/// called only if there is such a cookie.
pub(crate) struct HostCookies<'a, S, P> {
    pub(crate) out: &'a mut S,
    pub(crate) is_shared: P,
}

impl<S: ResponseSink, P: Fn() -> bool + Send> ResponseSink for HostCookies<'_, S, P> {
    fn status(&mut self, status: StatusCode, reason: &str) -> pingora::Result<()> {
        self.out.status(status, reason)
    }

    fn field(&mut self, name: &str, value: &[u8]) -> pingora::Result<()> {
        if name.eq_ignore_ascii_case(SET_COOKIE) && has_domain(value) && (self.is_shared)() {
            let kept: Vec<&[u8]> =
                attributes(value).enumerate().filter(|one| !is_domain(*one)).map(|one| one.1).collect();
            return self.out.field(name, &kept.join(&b';'));
        }
        self.out.field(name, value)
    }
}

fn has_domain(cookie: &[u8]) -> bool {
    attributes(cookie).enumerate().any(is_domain)
}

/// The cookie's name and value, then its attributes (RFC 6265 section 5.2: quotes hide no semicolon).
fn attributes(cookie: &[u8]) -> impl Iterator<Item = &[u8]> {
    cookie.split(|byte| *byte == b';')
}

fn is_domain((place, attribute): (usize, &[u8])) -> bool {
    let name = attribute.split(|byte| *byte == b'=').next().unwrap_or_default();
    place > 0 && name.trim_ascii().eq_ignore_ascii_case(DOMAIN)
}
