//! Hostnames in one canonical form, parsed once on input.

use std::borrow::Borrow;
use std::str::FromStr;
use std::sync::Arc;

use crate::text::serde_as_text;

/// A hostname in canonical form: lower case, A-labels, no port, no trailing dot, at most 253 bytes; never an IP
/// address.
///
/// Two hostnames that name the same thing are equal byte for byte. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hostname(Arc<str>);

/// Why a text is not a hostname. `details.reason` of `invalid_domain` has these words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHostname {
    /// The text is empty.
    #[error("a hostname is needed, for example shop.example.com")]
    Empty,
    /// More than 253 bytes.
    #[error("a hostname has at most 253 characters")]
    TooLong,
    /// A label is empty, longer than 63 bytes, or starts or ends with a hyphen.
    #[error("every part between dots has 1 to 63 characters and neither starts nor ends with a hyphen")]
    Label,
    /// A character outside `a-z 0-9 - .`.
    #[error("use letters, digits, hyphens and dots only: no scheme, port, path, underscore or space")]
    Character,
    /// An IPv4 or IPv6 address.
    #[error("an IP address is not a hostname")]
    IpAddress,
    /// Internationalised text that UTS-46 does not allow.
    #[error("the internationalised name is not valid (UTS-46)")]
    Idna,
}

impl InvalidHostname {
    /// The word for `details.reason`.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::TooLong => "length",
            Self::Label => "label",
            Self::Character => "character",
            Self::IpAddress => "ip_address",
            Self::Idna => "idna",
        }
    }
}

impl Hostname {
    /// Parses user input: any case, Unicode allowed, one trailing dot allowed.
    pub fn parse(text: &str) -> Result<Self, InvalidHostname> {
        let text = text.trim();
        if text.is_ascii() {
            return Self::from_ascii(text);
        }
        let ascii =
            idna::domain_to_ascii_cow(text.as_bytes(), idna::AsciiDenyList::STD3).map_err(|_| InvalidHostname::Idna)?;
        Self::from_ascii(&ascii)
    }

    /// Parses SNI or Host (port already removed): ASCII, any case, one trailing dot allowed.
    pub fn from_ascii(text: &str) -> Result<Self, InvalidHostname> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Err(InvalidHostname::Empty);
        }
        if text.len() > 253 {
            return Err(InvalidHostname::TooLong);
        }
        if text.starts_with('[') || text.contains(':') {
            return Err(if text.parse::<std::net::Ipv6Addr>().is_ok() || text.starts_with('[') {
                InvalidHostname::IpAddress
            } else {
                InvalidHostname::Character
            });
        }
        if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.') {
            return Err(InvalidHostname::Character);
        }
        let label_ok =
            |label: &str| (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-');
        if !text.split('.').all(label_ok) {
            return Err(InvalidHostname::Label);
        }
        // RFC 1123 section 2.1: some parsers read a name with a numeric last label as an address.
        if text.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit())) {
            return Err(InvalidHostname::IpAddress);
        }
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Ok(Self(text.to_ascii_lowercase().into()))
        } else {
            Ok(Self(text.into()))
        }
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name one level up, if any: `shop.example.com` → `example.com`.
    pub fn parent(&self) -> Option<&str> {
        self.0.split_once('.').map(|(_, parent)| parent)
    }

    /// Whether this name is `zone` or lies below it.
    pub fn is_under(&self, zone: &Hostname) -> bool {
        self.0.strip_suffix(&*zone.0).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }

    /// The name `label` below this one; an error if the result is too long or the label is invalid.
    pub fn child(&self, label: &str) -> Result<Self, InvalidHostname> {
        Self::from_ascii(&format!("{label}.{}", self.0))
    }

    /// The U-label form of the name, for display, never for comparison.
    pub fn to_unicode(&self) -> String {
        idna::domain_to_unicode(&self.0).0
    }
}

impl FromStr for Hostname {
    type Err = InvalidHostname;

    fn from_str(text: &str) -> Result<Self, InvalidHostname> {
        Self::parse(text)
    }
}

impl Borrow<str> for Hostname {
    fn borrow(&self) -> &str {
        &self.0
    }
}

serde_as_text!(Hostname);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_name_become_one_hostname() {
        for spelling in ["shop.example.com", "SHOP.Example.COM", "shop.example.com.", " shop.example.com "] {
            assert_eq!(Hostname::parse(spelling).unwrap().as_str(), "shop.example.com");
        }
        assert_eq!(Hostname::parse("bücher.example").unwrap().as_str(), "xn--bcher-kva.example");
        assert_eq!(Hostname::parse("BÜCHER.example").unwrap().to_unicode(), "bücher.example");
    }

    #[test]
    fn invalid_hostnames_are_refused_with_their_reason() {
        let long_label = format!("{}.example", "a".repeat(64));
        let long_name = format!("{}example", "abcdefgh.".repeat(30));
        for (text, reason) in [
            ("", "empty"),
            (".", "empty"),
            ("a..b", "label"),
            ("-a.example", "label"),
            (long_label.as_str(), "label"),
            (long_name.as_str(), "length"),
            ("a_b.example", "character"),
            ("a b.example", "character"),
            ("http://a.example/", "character"),
            ("a.example:80", "character"),
            ("a.example,b.example", "character"),
            ("*.example", "character"),
            ("127.0.0.1", "ip_address"),
            ("1.2.3.4.", "ip_address"),
            ("0x7f.1", "ip_address"),
            ("[::1]", "ip_address"),
            ("::1", "ip_address"),
        ] {
            assert_eq!(Hostname::parse(text).map_err(InvalidHostname::reason), Err(reason), "{text:?}");
        }
    }

    #[test]
    fn a_name_is_in_a_zone_by_whole_labels_only() {
        let zone = Hostname::parse("tollhouse.localhost").unwrap();
        assert!(Hostname::parse("demo.tollhouse.localhost").unwrap().is_under(&zone));
        assert!(zone.is_under(&zone));
        assert!(!Hostname::parse("eviltollhouse.localhost").unwrap().is_under(&zone));
    }

    proptest::proptest! {
        #[test]
        fn parsing_is_idempotent(text in "\\PC{0,80}") {
            if let Ok(host) = Hostname::parse(&text) {
                proptest::prop_assert_eq!(Hostname::parse(host.as_str()).unwrap(), host.clone());
                proptest::prop_assert_eq!(Hostname::from_ascii(host.as_str()).unwrap(), host);
            }
        }
    }
}
