//! Rules of the head that hold for every version of HTTP. The door applies their HTTP/1 form to raw bytes; here they
//! hold for what HTTP/2 delivered.

use http::uri::Authority;
use http::{HeaderMap, Method};

use crate::rejection::Rejection;

/// Fields in one head.
const FIELDS_MAX: usize = 100;
/// Bytes in one field, name and value.
const FIELD_BYTES_MAX: usize = 8 * 1024;
/// Bytes of a method; the longest registered one has 17.
pub(crate) const METHOD_BYTES_MAX: usize = 32;
/// Bytes of a request target.
const TARGET_BYTES_MAX: usize = 8 * 1024;

/// As the door has it.
pub(super) fn method(method: &Method) -> Result<(), Rejection> {
    if method.as_str().len() > METHOD_BYTES_MAX { Err(Rejection::BadRequest) } else { Ok(()) }
}

/// RFC 9113 section 8.3.1: `Host` is `:authority` where both are there. It comes once, as everywhere (RFC 9112 section 3.2).
pub(super) fn authority(authority: Option<&Authority>, headers: &HeaderMap) -> Result<(), Rejection> {
    let mut hosts = headers.get_all(http::header::HOST).iter();
    let (host, another) = (hosts.next(), hosts.next());
    let differs = host.zip(authority).is_some_and(|(host, authority)| host.as_bytes() != authority.as_str().as_bytes());
    if another.is_some() || differs { Err(Rejection::BadHost) } else { Ok(()) }
}

pub(super) fn fields(headers: &HeaderMap) -> Result<(), Rejection> {
    if headers.len() > FIELDS_MAX {
        return Err(Rejection::HeadersTooLarge);
    }
    for (name, value) in headers {
        if name.as_str().len() + value.len() > FIELD_BYTES_MAX {
            return Err(Rejection::HeadersTooLarge);
        }
        if name.as_str().contains('_') {
            return Err(Rejection::UnderscoreHeader);
        }
        if value.as_bytes().iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            return Err(Rejection::BadRequest);
        }
    }
    // The library takes two that agree, and would pass both on.
    if headers.get_all(http::header::CONTENT_LENGTH).iter().nth(1).is_some() {
        return Err(Rejection::BadFraming);
    }
    if let Some(expect) = headers.get(http::header::EXPECT)
        && expect != "100-continue"
    {
        return Err(Rejection::ExpectationFailed);
    }
    Ok(())
}

pub(crate) fn target(target: &str, method: &Method) -> Result<(), Rejection> {
    if target.len() > TARGET_BYTES_MAX {
        return Err(Rejection::UriTooLong);
    }
    if target == "*" {
        return if *method == Method::OPTIONS { Ok(()) } else { Err(Rejection::BadTarget) };
    }
    let clean =
        target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'#'));
    if clean { Ok(()) } else { Err(Rejection::BadTarget) }
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
    fn targets_are_paths_of_visible_characters() {
        for good in ["/", "/a?b=c", "/%2F//x", "/a|b", "/?"] {
            assert_eq!(target(good, &Method::GET), Ok(()), "{good}");
        }
        for bad in ["*", "a", "/a b", "/a\\b", "/a#b", "/\u{1}", "/ü"] {
            assert_eq!(target(bad, &Method::GET), Err(Rejection::BadTarget), "{bad}");
        }
        assert_eq!(target("*", &Method::OPTIONS), Ok(()));
        assert_eq!(target(&format!("/{}", "a".repeat(8_192)), &Method::GET), Err(Rejection::UriTooLong));
    }

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
