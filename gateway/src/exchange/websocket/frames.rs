//! Where the frames of a WebSocket begin and end, in one direction (RFC 6455 section 5.2).

/// Opcode of a Close frame.
const CLOSE: u8 = 8;
/// The bit of the second byte that announces a mask.
const MASKED: u8 = 0x80;
const MASK_BYTES: u8 = 4;

/// The place in a direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Frames {
    /// Bytes of the current header so far.
    header: u8,
    /// Bytes of the header that have the length, after the first two, and of the mask.
    length_bytes: u8,
    mask_bytes: u8,
    length: u64,
    /// Bytes left of the current frame.
    left: u64,
    has_closed: bool,
}

impl Frames {
    /// Passes these bytes, which follow the ones before.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) {
        loop {
            let skipped = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
            self.left -= skipped as u64;
            let Some((byte, rest)) = bytes.get(skipped..).and_then(<[u8]>::split_first) else { return };
            bytes = rest;
            self.begin(*byte);
        }
    }

    /// Takes one byte of a header.
    fn begin(&mut self, byte: u8) {
        match self.header {
            0 => self.has_closed |= byte & 0x0f == CLOSE,
            1 => {
                self.mask_bytes = if byte & MASKED == 0 { 0 } else { MASK_BYTES };
                (self.length_bytes, self.length) = match byte & !MASKED {
                    126 => (2, 0),
                    127 => (8, 0),
                    length => (0, u64::from(length)),
                };
            }
            at if at < 2 + self.length_bytes => self.length = self.length << 8 | u64::from(byte),
            _ => {}
        }
        self.header += 1;
        if self.header >= 2 && self.header == 2 + self.length_bytes + self.mask_bytes {
            *self = Self { left: self.length, has_closed: self.has_closed, ..Self::default() };
        }
    }

    /// Whether the last frame is complete and no other has begun.
    pub(super) fn is_between(&self) -> bool {
        self.left == 0 && self.header == 0
    }

    /// Whether there was a Close frame.
    pub(super) fn has_closed(&self) -> bool {
        self.has_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_found_however_the_bytes_are_split() {
        let frames: [Vec<u8>; 5] = [
            b"\x81\x05hello".to_vec(),
            b"\x81\x85mask.....".to_vec(),
            [&[0x82, 126, 0x01, 0x00][..], &[7; 256]].concat(),
            [&[0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 1, 2, 3, 4][..], &vec![7; 65_536]].concat(),
            vec![0x89, 0],
        ];
        let bytes = frames.concat();
        let ends: Vec<usize> = frames
            .iter()
            .scan(0, |end, frame| {
                Some({
                    *end += frame.len();
                    *end
                })
            })
            .collect();
        for size in [1, 2, 3, 7, 100, 4_096] {
            let (mut place, mut passed) = (Frames::default(), 0);
            for piece in bytes.chunks(size) {
                place.pass(piece);
                passed += piece.len();
                assert_eq!(place.is_between(), ends.contains(&passed), "{size} {passed}");
            }
            assert!(!place.has_closed());
            place.pass(b"\x88\x02\x03");
            assert!(place.has_closed() && !place.is_between());
        }
    }
}
