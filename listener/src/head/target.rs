//! The request target: its form (one of four), and a check of every byte.
//!
//! The pipeline handles percent-decoding, dot segments and doubled slashes: it normalises once and forwards the path
//! that it routed. `%00` in a path is refused here because no such path can exist. A query is data: a bare `%`, a
//! backslash and `%u00fc` pass, as browsers send them.

use std::ops::Range;

use super::bytes::{is_path, is_query};
use super::host;
use contract::rejection::Rejection;

/// Accepts origin-form, absolute-form over http or https, `*` with OPTIONS and authority-form with CONNECT. Returns the
/// range of the authority of an absolute form, in bytes of the target.
pub(super) fn check(method: &[u8], target: &[u8]) -> Result<Option<Range<usize>>, Rejection> {
    if method == b"CONNECT" {
        return if host::has_port(target) && host::check(target).is_ok() {
            Ok(None)
        } else {
            Err(Rejection::BadTarget)
        };
    }
    if target == b"*" {
        return if method == b"OPTIONS" { Ok(None) } else { Err(Rejection::BadTarget) };
    }
    if target.first() == Some(&b'/') {
        return path_and_query(target).map(|()| None);
    }
    absolute(target)
}

fn absolute(target: &[u8]) -> Result<Option<Range<usize>>, Rejection> {
    let scheme_bytes = [&b"http://"[..], b"https://"]
        .into_iter()
        .find(|scheme| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
        .map(<[u8]>::len)
        .ok_or(Rejection::BadTarget)?;
    let rest = target.get(scheme_bytes..).unwrap_or_default();
    let authority_bytes = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(authority_bytes).ok_or(Rejection::BadTarget)?;
    host::check(authority).map_err(|_| Rejection::BadTarget)?;
    path_and_query(path)?;
    Ok(Some(scheme_bytes..scheme_bytes + authority_bytes))
}

fn path_and_query(target: &[u8]) -> Result<(), Rejection> {
    let end = memchr::memchr(b'?', target).unwrap_or(target.len());
    let (mut path, query) = target.split_at_checked(end).ok_or(Rejection::BadTarget)?;
    if !query.iter().all(|byte| is_query(*byte)) {
        return Err(Rejection::BadTarget);
    }
    while let [byte, tail @ ..] = path {
        path = match *byte {
            b'%' => match tail {
                [b'0', b'0', ..] => return Err(Rejection::BadTarget),
                [high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => tail,
                _ => return Err(Rejection::BadTarget),
            },
            byte if is_path(byte) => tail,
            _ => return Err(Rejection::BadTarget),
        };
    }
    Ok(())
}

/// Whether a path has `.` or `..` segments, plain or percent-encoded. Clients resolve them before sending (RFC 3986
/// section 5.2.4); a client that does not may be probing for two readings of one path.
pub fn has_dot_segments(path: &str) -> bool {
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
