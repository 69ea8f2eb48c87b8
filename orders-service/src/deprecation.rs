//! Headers of deprecated operations: `Deprecation` (RFC 9745), `Sunset` (RFC 8594), `Link`.

use std::str::FromStr;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use contract::time::UnixSeconds;

/// The header of RFC 9745.
pub(crate) const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
/// The header of RFC 8594.
pub(crate) const SUNSET: HeaderName = HeaderName::from_static("sunset");

/// The deprecation of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deprecation {
    /// Start of the deprecation.
    pub since: UnixSeconds,
    /// From this second on the operation answers 410. `None`: no date is set and no `Sunset` header is sent.
    pub sunset: Option<UnixSeconds>,
    /// Page that explains the deprecation.
    pub link: LinkTarget,
}

/// A URI reference that can stand between the angle brackets of a `Link` header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkTarget(String);

/// Text that is not a valid URI reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use an address such as \"https://example.com/changes\" or a path such as \"/reference\"")]
pub struct InvalidLinkTarget;

impl FromStr for LinkTarget {
    type Err = InvalidLinkTarget;

    fn from_str(text: &str) -> Result<Self, InvalidLinkTarget> {
        let begins = text.starts_with("https://") || text.starts_with("http://") || text.starts_with('/');
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"\\^`{|}".contains(&byte));
        if begins && plain { Ok(Self(text.to_owned())) } else { Err(InvalidLinkTarget) }
    }
}

impl Deprecation {
    /// Whether the sunset date has passed.
    pub fn is_over(&self, now: UnixSeconds) -> bool {
        self.sunset.is_some_and(|sunset| now >= sunset)
    }

    /// Adds the headers.
    pub(crate) fn decorate(&self, headers: &mut HeaderMap) {
        let mut set = |name: HeaderName, value: String| {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.append(name, value);
            }
        };
        set(DEPRECATION, format!("@{}", self.since.0));
        let link = &self.link.0;
        set(header::LINK, format!("<{link}>; rel=\"deprecation\"; type=\"text/html\""));
        if let Some(date) = self.sunset.and_then(http_date) {
            set(SUNSET, date);
            set(header::LINK, format!("<{link}>; rel=\"sunset\"; type=\"text/html\""));
        }
    }
}

/// A date such as `Sun, 06 Nov 1994 08:49:37 GMT`; `None` outside of the range that HTTP can express.
fn http_date(at: UnixSeconds) -> Option<String> {
    let moment = jiff::Timestamp::from_second(at.0).ok()?;
    jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&moment).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(sunset: Option<i64>) -> HeaderMap {
        let link = "https://example.com/changes".parse().unwrap();
        let mut headers = HeaderMap::new();
        Deprecation { since: UnixSeconds(1_767_225_600), sunset: sunset.map(UnixSeconds), link }.decorate(&mut headers);
        headers
    }

    // rule: 9.3
    #[test]
    fn without_a_date_there_is_no_sunset_header() {
        let headers = headers(None);
        assert_eq!(headers[DEPRECATION], "@1767225600");
        assert!(!headers.contains_key(SUNSET));
        assert_eq!(headers[header::LINK], "<https://example.com/changes>; rel=\"deprecation\"; type=\"text/html\"");
    }

    // rule: 9.3
    #[test]
    fn a_sunset_date_has_the_format_of_http_dates() {
        let headers = headers(Some(1_798_761_600));
        assert_eq!(headers[SUNSET], "Fri, 01 Jan 2027 00:00:00 GMT");
        assert_eq!(headers.get_all(header::LINK).iter().count(), 2);
    }

    #[test]
    fn the_operation_ends_in_the_first_second_of_its_sunset_date() {
        let link: LinkTarget = "/reference#x".parse().unwrap();
        let ends = Deprecation { since: UnixSeconds(0), sunset: Some(UnixSeconds(100)), link: link.clone() };
        assert!(!ends.is_over(UnixSeconds(99)));
        assert!(ends.is_over(UnixSeconds(100)));
        assert!(!Deprecation { sunset: None, ..ends }.is_over(UnixSeconds(i64::MAX)));
    }

    #[test]
    fn a_link_target_that_could_close_its_brackets_is_rejected() {
        for bad in ["", "reference", "https://a/>; rel=x", "/a b", "javascript:alert(1)", "/ä", "/\"", "/a\nb"] {
            assert_eq!(bad.parse::<LinkTarget>(), Err(InvalidLinkTarget), "{bad:?}");
        }
    }
}
