//! Percent-encoding (RFC 3986 section 2.1) of text that becomes a part of a URL.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What is escaped: whatever could end a segment of a path or a value of a query, and more.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// Text as one segment of a path, or as one name or value of a query.
pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// The bytes that were escaped.
pub fn decoded(text: &str) -> Vec<u8> {
    percent_decode_str(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_stays_in_its_segment() {
        assert_eq!(segment("shop.example.com"), "shop.example.com");
        assert_eq!(segment("../keys?x=b\u{fc}&"), "..%2Fkeys%3Fx%3Db%C3%BC%26");
        assert_eq!(decoded(&segment("../keys?x=b\u{fc}&")), "../keys?x=b\u{fc}&".as_bytes());
        assert_eq!(decoded("hunter%202%"), b"hunter 2%");
    }
}
