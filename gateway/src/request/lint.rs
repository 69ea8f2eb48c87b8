//! Rules beside those of the door's lint ([`crate::door::head`]), which hold for both versions of HTTP: what only HTTP/2
//! can say, and what only routing cares about.

use http::HeaderMap;
use http::uri::Authority;

use crate::rejection::Rejection;

/// RFC 9113 section 8.3.1: `Host` is `:authority` where both are there. It comes once, as everywhere (RFC 9112 section 3.2).
pub(super) fn authority(authority: Option<&Authority>, headers: &HeaderMap) -> Result<(), Rejection> {
    let mut hosts = headers.get_all(http::header::HOST).iter();
    let (host, another) = (hosts.next(), hosts.next());
    let differs = host.zip(authority).is_some_and(|(host, authority)| host.as_bytes() != authority.as_str().as_bytes());
    if another.is_some() || differs { Err(Rejection::BadHost) } else { Ok(()) }
}

/// Whether a path has `.` or `..` segments, plain or percent-encoded. Every client resolves them before sending
/// (RFC 3986 section 5.2.4); one that did not is trying two readings of one path.
pub(crate) fn has_dot_segments(path: &str) -> bool {
    path.split('/').any(|segment| {
        let decoded = segment.replace("%2e", ".").replace("%2E", ".");
        decoded == "." || decoded == ".."
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_segments_are_seen_in_every_spelling() {
        for path in ["/..", "/a/../b", "/%2e%2E/", "/./a", "/.%2e"] {
            assert!(has_dot_segments(path), "{path}");
        }
        for path in ["/", "/a..b", "/...", "/.well-known/x"] {
            assert!(!has_dot_segments(path), "{path}");
        }
    }
}
