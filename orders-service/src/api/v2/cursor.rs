//! Cursors: the position after the last order of a page, and the sort of the list.
//!
//! A cursor contains a position, not a count: orders added or changed before it neither repeat nor skip others. Every
//! text that matches the pattern is a valid cursor. The cursor's sort overrides the parameter's, so the two cannot
//! contradict each other. A cursor is not a secret: the project comes from the caller's identity.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::store::{After, Sort};

/// Encodes a missing ship date; no ship date has this value.
const UNDATED: i64 = i64::MIN;

const LETTERS: [(char, Sort); 4] =
    [('i', Sort::Id), ('I', Sort::IdDescending), ('s', Sort::ShipDate), ('S', Sort::ShipDateDescending)];

/// Encodes a cursor.
pub(super) fn write(sort: Sort, after: After) -> String {
    let letter = LETTERS.iter().find(|(_, of)| *of == sort).map_or('i', |(letter, _)| *letter);
    let mut bytes = after.ship_date_micros.unwrap_or(UNDATED).to_be_bytes().to_vec();
    bytes.extend_from_slice(&after.id.to_be_bytes());
    format!("{letter}{}", URL_SAFE_NO_PAD.encode(bytes))
}

/// Decodes a cursor; `None` if it is malformed.
pub(super) fn read(text: &str) -> Option<(Sort, After)> {
    let mut letters = text.chars();
    let letter = letters.next()?;
    let sort = LETTERS.iter().find(|(of, _)| *of == letter).map(|(_, sort)| *sort)?;
    let bytes = URL_SAFE_NO_PAD.decode(letters.as_str()).ok()?;
    let (micros, rest) = bytes.split_first_chunk::<8>()?;
    let id = <[u8; 8]>::try_from(rest).ok()?;
    let micros = i64::from_be_bytes(*micros);
    Some((sort, After { ship_date_micros: (micros != UNDATED).then_some(micros), id: i64::from_be_bytes(id) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::CURSOR_PATTERN;

    proptest::proptest! {
        #[test]
        fn a_cursor_decodes_to_its_position(micros: Option<i64>, id: i64, letter in 0_usize..4) {
            let sort = LETTERS[letter].1;
            let after = After { ship_date_micros: micros.filter(|micros| *micros != UNDATED), id };
            proptest::prop_assert_eq!(read(&write(sort, after)), Some((sort, after)));
        }

        #[test]
        fn every_text_that_matches_the_pattern_is_a_cursor(text in CURSOR_PATTERN.trim_matches(['^', '$'])) {
            proptest::prop_assert!(read(&text).is_some());
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,40}") {
            let _ = read(&text);
        }
    }

    #[test]
    fn malformed_cursors_are_rejected() {
        let text = write(Sort::Id, After { ship_date_micros: None, id: 1 });
        assert!(read(&text).is_some());
        for bad in [&text[1..], &text[..22], "", "i", &format!("{text}A"), &text.replace('i', "x"), "iäää"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
