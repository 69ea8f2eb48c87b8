//! Ids of orders and pets in paths.

/// Parses a percent-decoded path segment as an int64 in canonical form: `-?(0|[1-9][0-9]*)` without `-0`. With one
/// spelling per number, caches and logs see an order under one path.
pub fn parse_id(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let leading_zero = digits.len() > 1 && digits.starts_with('0');
    if digits.is_empty() || leading_zero || text == "-0" || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // rule: 4.2.2
    #[test]
    fn an_id_is_a_canonical_decimal_int64() {
        let good =
            [("0", 0), ("7", 7), ("-5", -5), ("9223372036854775807", i64::MAX), ("-9223372036854775808", i64::MIN)];
        for (text, id) in good {
            assert_eq!(parse_id(text), Some(id), "{text}");
        }
        let bad = [
            "",
            "-",
            "+5",
            "05",
            "-05",
            "-0",
            "00",
            "5.0",
            "1e3",
            " 5",
            "5 ",
            "5\n",
            "0x5",
            "5_0",
            "٥",
            "five",
            "null",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999999",
            "1/2",
            "--5",
            "5-",
        ];
        for text in bad {
            assert_eq!(parse_id(text), None, "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_int64_parses_from_its_decimal_text(id: i64) {
            proptest::prop_assert_eq!(parse_id(&id.to_string()), Some(id));
        }

        #[test]
        fn a_parsed_id_prints_back_unchanged(text in "[-+0-9a-f._ ]{0,22}") {
            if let Some(id) = parse_id(&text) {
                proptest::prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
