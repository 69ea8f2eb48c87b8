//! Where the messages of a gRPC body begin and end.

/// Bytes before each message: a flag, and its length in four bytes.
const PREFIX_BYTES: usize = 5;

/// The place in a body.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// Bytes of the current prefix so far.
    prefix_bytes: usize,
    length: u32,
    /// Bytes left of the current message.
    left: u32,
}

impl Messages {
    /// Passes these bytes, which follow the ones before.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) {
        loop {
            let skipped = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
            self.left -= u32::try_from(skipped).unwrap_or(self.left);
            bytes = bytes.get(skipped..).unwrap_or_default();
            let Some((byte, rest)) = bytes.split_first() else { return };
            bytes = rest;
            self.prefix_bytes += 1;
            if self.prefix_bytes > 1 {
                self.length = self.length << 8 | u32::from(*byte);
            }
            if self.prefix_bytes == PREFIX_BYTES {
                *self = Self { left: self.length, ..Self::default() };
            }
        }
    }

    /// Whether the last message is complete and no other has begun.
    pub(super) fn is_between(&self) -> bool {
        self.left == 0 && self.prefix_bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_found_however_the_bytes_are_split() {
        let body = b"\0\0\0\0\x03abc\x01\0\0\0\0\0\0\0\x01\0";
        let ends = [8, 13];
        for size in 1..=body.len() {
            let mut messages = Messages::default();
            let mut passed = 0;
            for piece in body.chunks(size) {
                messages.pass(piece);
                passed += piece.len();
                assert_eq!(messages.is_between(), ends.contains(&passed), "{size} {passed}");
            }
        }
        assert!(Messages::default().is_between());
    }
}
