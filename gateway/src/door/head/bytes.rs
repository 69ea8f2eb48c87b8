//! Which bytes may stand where. RFC 9110 section 5.6.2 for tokens, RFC 3986 for targets, RFC 9112 for lines.

/// A byte of a method, a field name or a list element.
pub(crate) const fn is_token(byte: u8) -> bool {
    matches!(byte,
        b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z')
}

/// A control byte that may stand nowhere in a head except as part of a line end. The tab is judged by its place.
pub(crate) const fn is_control(byte: u8) -> bool {
    matches!(byte, 0x00..=0x08 | 0x0A..=0x1F | 0x7F)
}

/// Optional white space: the space and the tab, nothing else.
pub(crate) const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// A byte of a path as it travels: RFC 3986, and `[ ] | ^`, which browsers send as they are.
pub(crate) const fn is_path(byte: u8) -> bool {
    matches!(byte,
        b'!' | b'$' | b'&'..=b'/' | b'0'..=b'9' | b':' | b';' | b'=' | b'@' | b'A'..=b'Z' | b'_' | b'a'..=b'z' | b'~'
        | b'[' | b']' | b'|' | b'^')
}

/// A byte of a query as it travels: what a path takes, and what the URL standard leaves bare in queries.
pub(crate) const fn is_query(byte: u8) -> bool {
    is_path(byte) || matches!(byte, b'?' | b'`' | b'{' | b'}')
}

/// `text` without white space at both ends.
pub(crate) fn trim(mut text: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = text
        && is_blank(*first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && is_blank(*last)
    {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_never_takes_what_ends_a_line_a_path_or_a_quoted_string() {
        for byte in [b' ', b'#', b'"', b'<', b'>', b'\\', b'%', 0x7F, 0x80, 0xFF, b'\t', b'\r', b'\n', 0] {
            assert!(!is_path(byte) && !is_query(byte), "{byte:#x}");
        }
        let path = (0..=u8::MAX).filter(|byte| is_path(*byte)).count();
        // 62 alphanumerics, 4 unreserved marks, 11 sub-delims, `:` `@` `/`, and the four browsers leave bare.
        assert_eq!(path, 62 + 4 + 11 + 3 + 4);
    }

    #[test]
    fn white_space_is_trimmed_at_the_ends_only() {
        assert_eq!(trim(b" \t a b\t "), b"a b");
        assert_eq!(trim(b" \t "), b"");
        assert_eq!(trim(b"\x0ba"), b"\x0ba");
    }
}
