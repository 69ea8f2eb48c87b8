//! The head of an HTTP/1 request as bytes.

use std::borrow::Cow;
use std::mem::MaybeUninit;

use pingora::{ErrorType, OrErr as _};
use pingora_http::RequestHeader;

use contract::rejection::Rejection;

/// The most field lines that the parser accepts; the limit of the listener is lower.
const FIELDS_MAX: usize = 256;

/// Parses a head that the listener has checked. An absolute target is reduced to its path: the listener has compared
/// its authority with the host (RFC 9112 section 3.2.2).
///
/// # Errors
/// If it is malformed, or its method is CONNECT.
pub(super) fn parse(bytes: &[u8]) -> Result<RequestHeader, Rejection> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut []);
    let whole = request.parse_with_uninit_headers(bytes, &mut fields).is_ok_and(|status| status.is_complete());
    let (Some(method), Some(target), true) = (request.method, request.path, whole) else {
        return Err(Rejection::BadRequest);
    };
    if method == "CONNECT" {
        return Err(Rejection::MethodNotAllowed);
    }
    head(method, &origin(method, target), request.headers, request.version == Some(0))
        .map_err(|_| Rejection::BadRequest)
}

fn head(
    method: &str,
    target: &str,
    fields: &[httparse::Header<'_>],
    is_http10: bool,
) -> pingora::Result<RequestHeader> {
    let mut head = RequestHeader::build_no_case(method, target.as_bytes(), Some(fields.len()))?;
    for field in fields {
        let name = http::HeaderName::from_bytes(field.name.as_bytes());
        head.append_header(name.or_err(ErrorType::InvalidHTTPHeader, "invalid field name")?, field.value)?;
    }
    if is_http10 {
        head.set_version(http::Version::HTTP_10);
    }
    Ok(head)
}

/// The target without scheme and authority.
fn origin<'a>(method: &str, target: &'a str) -> Cow<'a, str> {
    if target.starts_with('/') || target == "*" {
        return Cow::Borrowed(target);
    }
    let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
    match rest.find(['/', '?']).map(|at| rest.split_at(at).1) {
        Some(path) if path.starts_with('/') => Cow::Borrowed(path),
        Some(query) => Cow::Owned(format!("/{query}")),
        // RFC 9112 section 3.2.4.
        None if method == "OPTIONS" => Cow::Borrowed("*"),
        None => Cow::Borrowed("/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_parsed_unchanged() {
        let head = parse(b"GET /a?b=c HTTP/1.1\r\nHost: a.example\r\nX-One: 1\r\nx-one:  2 \r\n\r\n").unwrap();
        assert_eq!((head.method.as_str(), head.uri.path(), head.uri.query()), ("GET", "/a", Some("b=c")));
        assert_eq!(head.headers.get("host").unwrap(), "a.example");
        let ones: Vec<_> = head.headers.get_all("x-one").iter().collect();
        assert_eq!(ones, ["1", "2"]);
        assert_eq!(head.version, http::Version::HTTP_11);
    }

    #[test]
    fn every_form_of_target_becomes_a_path() {
        for (line, expected) in [
            ("GET /a?b HTTP/1.1", "/a?b"),
            ("OPTIONS * HTTP/1.1", "*"),
            ("OPTIONS http://a.example HTTP/1.1", "*"),
            ("GET http://a.example HTTP/1.1", "/"),
            ("GET HTTPS://a.example:81/a/b?c=//d HTTP/1.0", "/a/b?c=//d"),
            ("GET http://a.example?q=/ HTTP/1.1", "/?q=/"),
        ] {
            let head = parse(format!("{line}\r\nHost: a.example\r\n\r\n").as_bytes()).unwrap();
            assert_eq!(head.uri.path_and_query().unwrap().as_str(), expected, "{line}");
            assert_eq!(head.version == http::Version::HTTP_10, line.ends_with("1.0"), "{line}");
        }
    }

    #[test]
    fn connect_and_truncated_heads_are_refused() {
        let connect = parse(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n");
        assert_eq!(connect.unwrap_err(), Rejection::MethodNotAllowed);
        assert_eq!(parse(b"GET / HTTP/1.1\r\nHost: a.exam").unwrap_err(), Rejection::BadRequest);
    }
}
