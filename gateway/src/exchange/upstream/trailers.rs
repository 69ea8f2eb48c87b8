//! Forwards trailers, in either direction and between both versions, and drops forbidden ones.

use http::{HeaderMap, HeaderName, HeaderValue};

use listener::fields::{is_reserved, may_stand_in_trailers};
use upstreams::fields::FieldRules;

/// The most trailers of a response; further ones are dropped.
const FIELDS_MAX: usize = 100;
/// The most bytes of their names and values, so that clients accept them.
const FIELDS_BYTES_MAX: usize = 16 * 1024;

/// The forwarded trailers of a request, by the rules of the upstream: a server may merge them into the head.
pub(crate) fn of_request(fields: HeaderMap, rules: &FieldRules) -> HeaderMap {
    without(fields, |name| is_reserved(name) || rules.removes(name))
}

/// The forwarded trailers of a response.
pub(crate) fn of_response(fields: HeaderMap, is_removed: impl Fn(&str) -> bool) -> HeaderMap {
    without(fields, is_removed)
}

/// Parses the trailers after the last chunk of a response. Malformed, folded and incomplete fields are dropped, and
/// those beyond the limits: the body is complete without them.
pub(crate) fn read(bytes: &[u8]) -> HeaderMap {
    let (mut fields, mut size, mut last) = (HeaderMap::new(), 0, None);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some(line) = line.strip_suffix(b"\n") else { break };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            if let Some(folded) = last.take() {
                fields.remove(&folded);
            }
            continue;
        }
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = line.split_at(colon);
        let name = HeaderName::from_bytes(name.trim_ascii_end());
        let value = HeaderValue::from_bytes(value.get(1..).unwrap_or_default().trim_ascii());
        let (Ok(name), Ok(value)) = (name, value) else { continue };
        size += name.as_str().len() + value.len();
        if size > FIELDS_BYTES_MAX || fields.len() == FIELDS_MAX {
            break;
        }
        fields.append(&name, value);
        last = Some(name);
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
    fn malformed_and_surplus_trailers_are_dropped_alone() {
        let text =
            b"X_Under: 1\nX-A : 2\r\nX-Folded: 3\r\n  more\r\nno colon\r\nX-Nul: \0\r\n: 4\r\nX-B:5\r\nX-C: incompl";
        let mut written = Vec::new();
        write(Some(&read(text)), &mut written);
        assert_eq!(written, b"x_under: 1\r\nx-a: 2\r\nx-b: 5\r\n\r\n");
        let many: String = (0..200).map(|number| format!("X-{number}: 1\r\n")).collect();
        assert_eq!(read(many.as_bytes()).len(), FIELDS_MAX);
        let large = format!("X-One: {}\r\nX-Two: {}\r\n\r\n", "a".repeat(9_000), "b".repeat(9_000));
        assert_eq!(read(large.as_bytes()).len(), 1);
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
