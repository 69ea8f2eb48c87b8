//! Slots of a Cluster (Redis Cluster specification, "Key distribution model").

/// Number of slots.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of a key: of the text between the first pair of braces, if any.
pub(super) fn slot_of(key: &str) -> u16 {
    let tagged = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    crc16(tagged.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % SLOTS
}

/// A tag whose keys are in one of the `owned` slots; found after a few attempts.
pub(super) fn tag_within(owned: impl Fn(u16) -> bool) -> Option<String> {
    (0..u32::from(SLOTS) * 64).map(|number| number.to_string()).find(|tag| owned(crc16(tag.as_bytes()) % SLOTS))
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_match_the_servers() {
        // The check value of the CRC, and slots that CLUSTER KEYSLOT answers.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of("{foo}.bar"), 12_182);
        assert_eq!(slot_of("a{foo}{bar}"), 12_182);
        assert_eq!(slot_of("foo{}"), crc16(b"foo{}") % SLOTS);
    }

    #[test]
    fn every_part_of_the_slots_has_a_tag() {
        for first in (0..SLOTS).step_by(64) {
            let tag = tag_within(|slot| (first..first + 64).contains(&slot)).unwrap();
            assert!((first..first + 64).contains(&slot_of(&format!("x:{{{tag}}}"))));
        }
    }
}
