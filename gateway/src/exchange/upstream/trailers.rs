//! Trailers: which are forwarded, in either direction and between both versions.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::fields::FieldRules;
use listener::fields::{is_reserved, may_stand_in_trailers};

/// The most field lines in the trailers of a response; the limit for chunked bodies is lower.
const FIELDS_MAX: usize = 32;

/// The forwarded trailers of a request, by the rules of the upstream: a server may merge them into the head.
pub(crate) fn of_request(fields: HeaderMap, rules: &FieldRules) -> HeaderMap {
    without(fields, |name| is_reserved(name) || rules.removes(name))
}

/// The forwarded trailers of a response.
pub(crate) fn of_response(fields: HeaderMap, is_removed: impl Fn(&str) -> bool) -> HeaderMap {
    without(fields, is_removed)
}

/// Parses the trailers after the last chunk of a response, including the blank line.
pub(crate) fn read(bytes: &[u8]) -> HeaderMap {
    let mut lines = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut fields = HeaderMap::new();
    if let Ok(httparse::Status::Complete((_, lines))) = httparse::parse_headers(bytes, &mut lines) {
        for line in lines {
            let (name, value) = (HeaderName::from_bytes(line.name.as_bytes()), HeaderValue::from_bytes(line.value));
            if let (Ok(name), Ok(value)) = (name, value) {
                fields.append(name, value);
            }
        }
    }
    fields
}

/// Writes trailers after the last chunk, including the blank line.
pub(crate) fn write(fields: Option<&HeaderMap>, into: &mut impl bytes::BufMut) {
    for (name, value) in fields.into_iter().flatten() {
        into.put_slice(name.as_str().as_bytes());
        into.put_slice(b": ");
        into.put_slice(value.as_bytes());
        into.put_slice(b"\r\n");
    }
    into.put_slice(b"\r\n");
}

fn without(mut fields: HeaderMap, is_dropped: impl Fn(&str) -> bool) -> HeaderMap {
    let is_dropped = |name: &str| !may_stand_in_trailers(name) || is_dropped(name);
    let dropped: Vec<HeaderName> = fields.keys().filter(|name| is_dropped(name.as_str())).cloned().collect();
    for name in dropped {
        fields.remove(name);
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_are_parsed_and_written() {
        let text = b"X-Sum: 6\r\nx-sum:7\r\nSet-Cookie: a=b\r\n\r\n";
        let fields = of_response(read(text), |name| name == "x-own");
        let mut written = Vec::new();
        write(Some(&fields), &mut written);
        assert_eq!(written, b"x-sum: 6\r\nx-sum: 7\r\n\r\n");
        assert!(read(b"\r\n").is_empty() && read(b"x").is_empty());
    }

    #[test]
    fn reserved_fields_are_dropped_from_trailers() {
        let fields =
            read(b"X-Forwarded-For: 1\r\nTollhouse-Identity-Token: x\r\nX-Sum: 1\r\nX-Internal: 1\r\nHost: a\r\n\r\n");
        let rules = FieldRules { drop: vec!["X-Internal".parse().unwrap()], ..FieldRules::USUAL };
        let left = of_request(fields, &rules);
        assert_eq!((left.len(), left.contains_key("x-sum")), (1, true), "{left:?}");
    }
}
