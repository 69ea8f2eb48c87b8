//! Percent-encoding (RFC 3986 section 2.1) of text for URLs.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Escaped characters: all that could end a path segment or a query value, and more.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// Text as one segment of a path, or as one name or value of a query.
pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_stays_in_its_segment() {
        assert_eq!(segment("shop.example.com"), "shop.example.com");
        assert_eq!(segment("../keys?x=b\u{fc}&"), "..%2Fkeys%3Fx%3Db%C3%BC%26");
    }
}
