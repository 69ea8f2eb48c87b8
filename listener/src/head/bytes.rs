//! Classes of bytes: RFC 9110 for tokens, RFC 3986 for targets, RFC 9112 for lines.

const TOKEN: u8 = 1;
const PATH: u8 = 2;
const QUERY: u8 = 4;

/// The classes of each byte, so that a check costs one load.
static CLASSES: [u8; 256] = classes();

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler: an index out of bounds does not build")]
const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0_u8;
    while byte < 0x7F {
        let mut class = 0;
        if matches!(byte, b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z') {
            class = TOKEN | PATH | QUERY;
        }
        // RFC 9110 section 5.6.2.
        if matches!(
            byte,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        ) {
            class |= TOKEN;
        }
        // RFC 3986, and `[ ] | ^`, which browsers send as they are.
        if matches!(
            byte,
            b'!' | b'$' | b'&'..=b'/' | b':' | b';' | b'=' | b'@' | b'_' | b'~' | b'[' | b']' | b'|' | b'^'
        ) {
            class |= PATH | QUERY;
        }
        // The URL standard leaves these unescaped in queries. A query is data: no server resolves it as a path.
        if matches!(byte, b'?' | b'`' | b'{' | b'}' | b'\\' | b'%') {
            class |= QUERY;
        }
        classes[byte as usize] = class;
        byte += 1;
    }
    classes
}

fn is(byte: u8, class: u8) -> bool {
    CLASSES.get(usize::from(byte)).is_some_and(|classes| classes & class != 0)
}

/// Whether a byte may be part of a method, a field name or a list element.
pub(crate) fn is_token(byte: u8) -> bool {
    is(byte, TOKEN)
}

/// Whether a byte may be part of a path.
pub(crate) fn is_path(byte: u8) -> bool {
    is(byte, PATH)
}

/// Whether a byte may be part of a query.
pub(crate) fn is_query(byte: u8) -> bool {
    is(byte, QUERY)
}

/// Whether a byte is a control byte, forbidden in a head except in a line end. The tab is allowed in some places and
/// checked there.
pub(crate) const fn is_control(byte: u8) -> bool {
    matches!(byte, 0x00..=0x08 | 0x0A..=0x1F | 0x7F)
}

/// The number of bytes before the first control byte. Checks eight at a time, because every byte of a head passes here.
pub(crate) fn text_bytes(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES * 0x80;
    let (eights, _) = bytes.as_chunks::<8>();
    let clean = eights
        .iter()
        .take_while(|eight| {
            let word = u64::from_le_bytes(**eight);
            // A byte below 0x20 borrows from its high bit; so does, after the exclusive or, a byte equal to 0x7F. Tabs
            // and bytes above a borrow may be flagged wrongly; the loop below checks them one by one.
            let below_space = word.wrapping_sub(ONES * 0x20) & !word;
            let delete = word ^ (ONES * 0x7F);
            let is_delete = delete.wrapping_sub(ONES) & !delete;
            (below_space | is_delete) & HIGH == 0
        })
        .count()
        * 8;
    let rest = bytes.get(clean..).unwrap_or_default();
    clean + rest.iter().position(|byte| is_control(*byte)).unwrap_or(rest.len())
}

/// Whether a byte is optional white space: space or tab.
pub(crate) const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
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
    fn a_target_never_contains_a_byte_that_ends_a_line_a_path_or_a_quoted_string() {
        for byte in [b' ', b'#', b'"', b'<', b'>', 0x7F, 0x80, 0xFF, b'\t', b'\r', b'\n', 0] {
            assert!(!is_path(byte) && !is_query(byte), "{byte:#x}");
        }
        // In a path a percent sign begins an escape, which is checked with its digits.
        for byte in [b'\\', b'%', b'?'] {
            assert!(!is_path(byte) && is_query(byte), "{byte:#x}");
        }
        let path = (0..=u8::MAX).filter(|byte| is_path(*byte)).count();
        // 62 alphanumerics, 4 unreserved marks, 11 sub-delims, `:` `@` `/`, and the four browsers leave bare.
        assert_eq!(path, 62 + 4 + 11 + 3 + 4);
    }

    proptest::proptest! {
        #[test]
        fn text_ends_at_the_first_control_byte(
            bytes in proptest::collection::vec(proptest::sample::select(vec![b'a', b'\t', 0x7E, 0x7F, 0x80, 0xFF, 0x1F, b' ', 0]), 0..40),
            clean in 0_usize..40,
        ) {
            let bytes = [vec![b'x'; clean], bytes].concat();
            let expected = bytes.iter().position(|byte| is_control(*byte)).unwrap_or(bytes.len());
            proptest::prop_assert_eq!(text_bytes(&bytes), expected);
        }
    }

    #[test]
    fn white_space_is_trimmed_at_the_ends_only() {
        assert_eq!(trim(b" \t a b\t "), b"a b");
        assert_eq!(trim(b" \t "), b"");
        assert_eq!(trim(b"\x0ba"), b"\x0ba");
    }
}
