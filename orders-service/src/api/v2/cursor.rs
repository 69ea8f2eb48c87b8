//! Cursors: the place after the last order of a page, tied to the list it belongs to.
//!
//! A cursor names a place in the order of sorting, not a count, so orders added or changed in front of it neither
//! repeat nor skip any other. It is no secret and protects nothing: the project comes from the caller's identity.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::store::After;

/// The form of cursors; another number is another form.
const VERSION: u8 = 1;

/// 1 version, 4 fingerprint, 1 whether there is a ship date, 8 ship date, 8 id.
const BYTES: usize = 22;

/// The text of a cursor. `fingerprint` is that of the filters and the sort.
pub(super) fn write(after: After, fingerprint: u32) -> String {
    let mut bytes = Vec::with_capacity(BYTES);
    bytes.push(VERSION);
    bytes.extend_from_slice(&fingerprint.to_be_bytes());
    bytes.push(u8::from(after.ship_date_micros.is_some()));
    bytes.extend_from_slice(&after.ship_date_micros.unwrap_or_default().to_be_bytes());
    bytes.extend_from_slice(&after.id.to_be_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The place a cursor names, if it was given out for this list.
pub(super) fn read(text: &str, fingerprint: u32) -> Option<After> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (version, rest) = bytes.split_first()?;
    let (given, rest) = rest.split_first_chunk::<4>()?;
    let (dated, rest) = rest.split_first()?;
    let (micros, rest) = rest.split_first_chunk::<8>()?;
    let (id, rest) = rest.split_first_chunk::<8>()?;
    let ours = *version == VERSION && u32::from_be_bytes(*given) == fingerprint && *dated <= 1 && rest.is_empty();
    ours.then(|| After {
        ship_date_micros: (*dated == 1).then(|| i64::from_be_bytes(*micros)),
        id: i64::from_be_bytes(*id),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn a_cursor_names_its_place_in_its_own_list_alone(micros: Option<i64>, id: i64, list: u32, other: u32) {
            let after = After { ship_date_micros: micros, id };
            let text = write(after, list);
            proptest::prop_assert_eq!(read(&text, list), Some(after));
            proptest::prop_assert!(list == other || read(&text, other).is_none());
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[A-Za-z0-9_=-]{0,40}") {
            let _ = read(&text, 0);
        }
    }

    #[test]
    fn anything_longer_or_shorter_is_no_cursor() {
        let text = write(After { ship_date_micros: None, id: 1 }, 7);
        assert!(read(&text, 7).is_some());
        assert!(read(&text[..text.len() - 2], 7).is_none());
        assert!(read(&format!("{text}AAAA"), 7).is_none());
        assert!(read("", 7).is_none());
    }
}
