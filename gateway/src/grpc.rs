//! gRPC and gRPC-Web: recognises calls, reads their timeouts, and maps refusals to statuses. A refusal has no body: its
//! status is in the head if no response has begun (`Trailers-Only`), else in the trailers.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use contract::rejection::Rejection;

pub(crate) const STATUS: &str = "grpc-status";
pub(crate) const MESSAGE: &str = "grpc-message";

/// The largest number of digits in a `grpc-timeout`.
const TIMEOUT_DIGITS_MAX: usize = 8;

/// The gRPC statuses that the gateway sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

/// The content type of gRPC.
pub(crate) const CONTENT_TYPE: &str = "application/grpc";

/// The form of a gRPC-Web call's bodies; its response has the same form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WebForm {
    /// Messages as they are.
    Binary,
    /// The same in base64.
    Text,
}

impl WebForm {
    /// The form of a request with these fields; `None` if it is not a gRPC-Web call.
    pub(crate) fn of(fields: &HeaderMap) -> Option<Self> {
        [Self::Binary, Self::Text].into_iter().find(|form| has_content_type(fields, form.content_type()))
    }

    /// Its content type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Binary => "application/grpc-web",
            Self::Text => "application/grpc-web-text",
        }
    }
}

/// Whether a request with these fields is a gRPC call: `application/grpc`, `application/grpc+proto` and so on. Not
/// gRPC-Web, which has its trailers in the body (`exchange/downstream/grpc_web.rs`).
pub(crate) fn is_call(fields: &HeaderMap) -> bool {
    has_content_type(fields, CONTENT_TYPE)
}

fn has_content_type(fields: &HeaderMap, kind: &str) -> bool {
    let found = fields.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    found.strip_prefix(kind.as_bytes()).is_some_and(begins_suffix)
}

/// Whether this may follow the name of a content type: nothing, the form of the messages, or parameters.
pub(crate) fn begins_suffix(rest: &[u8]) -> bool {
    rest.first().is_none_or(|next| matches!(next, b'+' | b';'))
}

/// The caller's timeout (`grpc-timeout`), if valid.
pub(crate) fn timeout(fields: &HeaderMap) -> Option<Duration> {
    let text = fields.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if !(1..=TIMEOUT_DIGITS_MAX).contains(&digits.len()) || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The status in a head or in trailers.
pub(crate) fn status(fields: &HeaderMap) -> Option<u16> {
    fields.get(STATUS)?.to_str().ok()?.parse().ok()
}

/// The trailers of a refusal, for a response that has begun; and the gRPC status.
pub(crate) fn trailers(rejection: Rejection) -> (HeaderMap, u16) {
    let (mut fields, code) = (HeaderMap::with_capacity(2), code(rejection));
    fields.insert(HeaderName::from_static(STATUS), code.into());
    if let Ok(message) = HeaderValue::try_from(encoded(rejection.message())) {
        fields.insert(HeaderName::from_static(MESSAGE), message);
    }
    (fields, code)
}

/// The gRPC status of a refusal. Callers decide by it whether to try again.
pub(crate) fn code(rejection: Rejection) -> u16 {
    let code = match (rejection, rejection.status()) {
        (Rejection::BodyTooLarge | Rejection::HeadersTooLarge | Rejection::UriTooLong, _) | (_, 429) => {
            Code::ResourceExhausted
        }
        (_, 401) => Code::Unauthenticated,
        (_, 403) => Code::PermissionDenied,
        (_, 404 | 405 | 415 | 501 | 505) => Code::Unimplemented,
        (_, 408 | 504) => Code::DeadlineExceeded,
        (_, 421 | 502 | 503) => Code::Unavailable,
        (_, 400..=499) => Code::InvalidArgument,
        _ => Code::Internal,
    };
    code as u16
}

/// Percent-encoded as the protocol requires: all but visible ASCII and space; the percent sign too.
pub(crate) fn encoded(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for byte in message.bytes() {
        if (b' '..=b'~').contains(&byte) && byte != b'%' {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))])
    }

    #[test]
    fn a_call_is_recognised_by_its_content_type() {
        for (kind, is) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/grpcx", false),
            ("application/json", false),
        ] {
            assert_eq!(is_call(&with("content-type", kind)), is, "{kind}");
        }
        assert!(!is_call(&HeaderMap::new()));
    }

    #[test]
    fn a_timeout_has_up_to_eight_digits_and_a_unit() {
        for (text, expected) in [
            ("1S", Some(Duration::from_secs(1))),
            ("99999999H", Some(Duration::from_hours(99_999_999))),
            ("20m", Some(Duration::from_millis(20))),
            ("3M", Some(Duration::from_mins(3))),
            ("7u", Some(Duration::from_micros(7))),
            ("7n", Some(Duration::from_nanos(7))),
            ("S", None),
            ("", None),
            ("123456789S", None),
            ("+1S", None),
            ("1s", None),
            ("1", None),
        ] {
            assert_eq!(timeout(&with("grpc-timeout", text)), expected, "{text}");
        }
    }

    #[test]
    fn every_refusal_has_a_grpc_status_and_a_message_valid_as_a_field() {
        for rejection in Rejection::ALL {
            let (fields, code) = trailers(*rejection);
            assert_eq!((status(&fields), fields.len()), (Some(code), 2), "{rejection:?}");
        }
        assert_eq!(code(Rejection::InvalidApiKey), 16);
        assert_eq!(code(Rejection::RateLimitExceeded), 8);
        assert_eq!(code(Rejection::UpstreamTimeout), 4);
        assert_eq!(code(Rejection::UpstreamUnreachable), 14);
        assert_eq!(encoded("100 % ü\n"), "100 %25 %C3%BC%0A");
    }
}
