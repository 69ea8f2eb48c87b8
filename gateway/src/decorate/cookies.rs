//! Cookies of the platform's hosts stay with the host that sets them.
//!
//! All projects share the platform's domain. A cookie with that domain in `Domain` would reach the dashboard, the API
//! and every other project, so the attribute is removed there, whatever its value: browsers disagree about spellings of
//! one domain. A customer's own domain keeps its cookies unchanged. Scripts of a page set cookies without a response;
//! only the Public Suffix List stops those (SECURITY.md).

use http::StatusCode;

use super::ResponseSink;

const SET_COOKIE: &str = "set-cookie";
const DOMAIN: &[u8] = b"domain";

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
