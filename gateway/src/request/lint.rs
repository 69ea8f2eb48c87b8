//! Checks in addition to the listener's ([`listener::head`], for both versions of HTTP): cases that only HTTP/2 has.

use http::HeaderMap;
use http::uri::Authority;

use contract::rejection::Rejection;

/// RFC 9113 section 8.3.1: `Host` must equal `:authority` if both exist. It occurs once, as everywhere (RFC 9112
/// section 3.2).
pub(super) fn authority(authority: Option<&Authority>, headers: &HeaderMap) -> Result<(), Rejection> {
    let mut hosts = headers.get_all(http::header::HOST).iter();
    let (host, another) = (hosts.next(), hosts.next());
    let differs = host.zip(authority).is_some_and(|(host, authority)| host.as_bytes() != authority.as_str().as_bytes());
    if another.is_some() || differs { Err(Rejection::BadHost) } else { Ok(()) }
}
