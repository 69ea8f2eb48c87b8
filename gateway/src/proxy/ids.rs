//! Names for requests.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::facts::RequestId;

/// Ids that do not repeat and cannot be told from random ones without knowing the start.
#[derive(Debug)]
pub struct RequestIds {
    seed: u128,
    count: AtomicU64,
}

impl RequestIds {
    /// From 16 random bytes.
    pub fn new(random: [u8; 16]) -> Self {
        Self { seed: u128::from_le_bytes(random), count: AtomicU64::new(0) }
    }

    /// The next id.
    pub fn next(&self) -> RequestId {
        let count = u128::from(self.count.fetch_add(1, Ordering::Relaxed));
        // A permutation of the 128-bit numbers (odd multipliers and xor-shifts can be undone), so no two are equal.
        let mut bits = self.seed.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        bits = (bits ^ (bits >> 67)).wrapping_mul(0xff51_afd7_ed55_8ccd_c4ce_b9fe_1a85_ec53);
        bits = (bits ^ (bits >> 61)).wrapping_mul(0x2127_599b_f432_5c37_e995_e0ca_bd51_9d9b);
        RequestId::new(bits ^ (bits >> 64))
    }
}
