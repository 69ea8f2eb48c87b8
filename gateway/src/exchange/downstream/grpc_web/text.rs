//! The text form of gRPC-Web: base64 in pieces, each with padding of its own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, BytesMut};

/// Characters that stand for up to three bytes.
const GROUP: usize = 4;

/// Appends these bytes in base64, with padding: nothing is held back, so that a message arrives when it was sent.
pub(super) fn encode(bytes: &[u8], into: &mut BytesMut) {
    let (start, length) = (into.len(), bytes.len().div_ceil(3) * GROUP);
    into.resize(start + length, 0);
    // The slice has exactly the needed length.
    let _ = STANDARD.encode_slice(bytes, into.get_mut(start..).unwrap_or_default());
}

/// Appends the bytes that the complete groups of `text` stand for, and removes these groups; `None` if they are
/// malformed. Padding may stand in any group.
pub(super) fn decode(text: &mut BytesMut, into: &mut BytesMut) -> Option<()> {
    let whole = text.len() / GROUP * GROUP;
    let mut groups = text.get(..whole)?;
    while !groups.is_empty() {
        // Up to the next padding.
        let end = memchr::memchr(b'=', groups).map_or(groups.len(), |at| (at / GROUP + 1) * GROUP);
        let (piece, rest) = groups.split_at_checked(end)?;
        let start = into.len();
        into.resize(start + end / GROUP * 3, 0);
        let decoded = STANDARD.decode_slice(piece, into.get_mut(start..)?).ok()?;
        into.truncate(start + decoded);
        groups = rest;
    }
    text.advance(whole);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a text that arrives in pieces of this size; `None` if it is malformed.
    fn decoded(text: &str, size: usize) -> Option<Vec<u8>> {
        let (mut waiting, mut into) = (BytesMut::new(), BytesMut::new());
        for piece in text.as_bytes().chunks(size) {
            waiting.extend_from_slice(piece);
            decode(&mut waiting, &mut into)?;
        }
        waiting.is_empty().then(|| into.to_vec())
    }

    #[test]
    fn text_is_decoded_however_it_is_split() {
        for size in 1..20 {
            assert_eq!(decoded("AAECAw==", size).unwrap(), [0, 1, 2, 3], "{size}");
            assert_eq!(decoded("AA==AQI=AwQF", size).unwrap(), [0, 1, 2, 3, 4, 5], "{size}");
            for wrong in ["AAE", "A===", "AA=A", "====", "AA==A", "AA\r\n", "AB==", "A-_A"] {
                assert_eq!(decoded(wrong, size), None, "{wrong} {size}");
            }
        }
    }

    #[test]
    fn pieces_are_padded() {
        let mut text = BytesMut::new();
        encode(b"\0", &mut text);
        encode(b"\x01\x02", &mut text);
        encode(b"\x03\x04\x05", &mut text);
        assert_eq!(text, "AA==AQI=AwQF");
    }
}
