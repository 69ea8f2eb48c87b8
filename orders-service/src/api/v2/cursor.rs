//! Cursors: the place after the last order of a page, and the sort in which it is a place.
//!
//! A cursor names a place, not a count, so orders added or changed in front of it neither repeat nor skip any other.
//! Every text of the form is a cursor, and its sort goes before the parameter's: a cursor cannot be combined with
//! something it does not fit. It is no secret and protects nothing: the project comes from the caller's identity.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::store::{After, Sort};

/// Stands for "no ship date"; no ship date has this number.
const UNDATED: i64 = i64::MIN;

const LETTERS: [(char, Sort); 4] =
    [('i', Sort::Id), ('I', Sort::IdDescending), ('s', Sort::ShipDate), ('S', Sort::ShipDateDescending)];

/// The text of a cursor.
pub(super) fn write(sort: Sort, after: After) -> String {
    let letter = LETTERS.iter().find(|(_, of)| *of == sort).map_or('i', |(letter, _)| *letter);
    let mut bytes = after.ship_date_micros.unwrap_or(UNDATED).to_be_bytes().to_vec();
    bytes.extend_from_slice(&after.id.to_be_bytes());
    format!("{letter}{}", URL_SAFE_NO_PAD.encode(bytes))
}

/// The place a cursor names.
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
        fn a_cursor_reads_back_as_its_place(micros: Option<i64>, id: i64, letter in 0_usize..4) {
            let sort = LETTERS[letter].1;
            let after = After { ship_date_micros: micros.filter(|micros| *micros != UNDATED), id };
            proptest::prop_assert_eq!(read(&write(sort, after)), Some((sort, after)));
        }

        #[test]
        fn every_text_of_the_form_is_a_cursor(text in CURSOR_PATTERN.trim_matches(['^', '$'])) {
            proptest::prop_assert!(read(&text).is_some());
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,40}") {
            let _ = read(&text);
        }
    }

    #[test]
    fn anything_else_is_no_cursor() {
        let text = write(Sort::Id, After { ship_date_micros: None, id: 1 });
        assert!(read(&text).is_some());
        for bad in [&text[1..], &text[..22], "", "i", &format!("{text}A"), &text.replace('i', "x"), "iäää"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
