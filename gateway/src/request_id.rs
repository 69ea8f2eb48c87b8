//! Request ids: 128 random bits each. An id does not reveal the next one or the number of requests.
//!
//! The bits come from the cryptographic library's generator, which the operating system seeds. A thread fetches bits
//! for many ids at once, because a fetch for each would cost more than the rest of its request's bookkeeping.

use std::cell::RefCell;
use std::fmt;

/// A request's id, and the trace id of its spans: 128 random bits in hex.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestId([u8; 32]);

impl RequestId {
    /// An unpredictable id.
    pub(crate) fn random() -> Self {
        FETCHED.with_borrow_mut(|fetched| Self::new(u128::from_le_bytes(fetched.take(chassis::random::bytes))))
    }

    /// From 16 bytes.
    pub(crate) fn new(bits: u128) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'0'; 32];
        for (index, digit) in text.iter_mut().enumerate() {
            let nibble = (bits >> (124 - index * 4)) & 0xf;
            *digit = DIGITS.get(usize::try_from(nibble).unwrap_or(0)).copied().unwrap_or(b'0');
        }
        Self(text)
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("0")
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Bytes of one id.
const ID_BYTES: usize = 16;

/// Random bytes that a thread fetches at once: 128 ids.
const FETCHED_BYTES: usize = 128 * ID_BYTES;

/// A thread's random bytes, and the number left.
struct Fetched {
    bytes: [u8; FETCHED_BYTES],
    left: usize,
}

thread_local! {
    static FETCHED: RefCell<Fetched> = const { RefCell::new(Fetched { bytes: [0; FETCHED_BYTES], left: 0 }) };
}

impl Fetched {
    /// The next id; fetches more bytes from `source` if none are left.
    fn take<E>(&mut self, source: impl FnOnce() -> Result<[u8; FETCHED_BYTES], E>) -> [u8; ID_BYTES] {
        if self.left == 0
            && let Ok(bytes) = source()
        {
            *self = Self { bytes, left: FETCHED_BYTES };
        }
        let (rest, id) = self.bytes.split_at_mut(self.left.saturating_sub(ID_BYTES));
        self.left = rest.len();
        // The process checks the generator when it starts, and ends without it. If it fails later, ids are zeros: they
        // are names, not secrets, and the request is still served.
        id.first_chunk_mut().map(std::mem::take).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn an_id_uses_each_byte_of_the_random_source_once() {
        let mut fetched = Fetched { bytes: [0; FETCHED_BYTES], left: 0 };
        for round in 0..3 {
            // No two ids of a round, and no two rounds, have the same bytes.
            let source: [u8; FETCHED_BYTES] =
                std::array::from_fn(|place| ((place * 31 + place / 256 + round) & 0xff).try_into().unwrap());
            let mut ids = vec![fetched.take(|| Ok::<_, ()>(source))];
            ids.extend((1..FETCHED_BYTES / ID_BYTES).map(|_| fetched.take(|| Err("the source is asked too early"))));
            ids.reverse();
            assert_eq!(ids.concat(), source, "round {round}");
        }
    }

    #[test]
    fn ids_are_unique_over_all_threads_and_their_bits_are_evenly_distributed() {
        const EACH: usize = 4_000;
        let of_a_thread = || (0..EACH).map(|_| RequestId::random().to_string()).collect::<Vec<_>>();
        let ids: HashSet<String> =
            (0..4).map(|_| std::thread::spawn(of_a_thread)).flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(ids.len(), 4 * EACH);
        for bit in 0..128 {
            let is_set = |id: &&String| u128::from_str_radix(id, 16).unwrap() >> bit & 1 == 1;
            let set = ids.iter().filter(is_set).count();
            // Half of 16,000 give or take ten standard deviations.
            assert!((7_368..=8_632).contains(&set), "bit {bit} is set in {set}");
        }
    }
}
