//! How often somebody may try to sign in: ten times in five minutes per client address, and thirty per key.
//!
//! In memory and bounded. A key has 178 bits of randomness, so this protects the database more than the keys.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use chassis::clock::Clock;

use crate::throttle::Throttle;

/// Attempts count this long.
const WINDOW: Duration = Duration::from_mins(5);

/// Attempts of one address (one /64 of IPv6) in [`WINDOW`].
pub(super) const PER_ADDRESS_MAX: usize = 10;

/// Attempts with one key in [`WINDOW`], from wherever.
pub(super) const PER_KEY_MAX: usize = 30;

/// Addresses and keys remembered.
const REMEMBERED_MAX: u64 = 50_000;

/// Attempts to sign in, by address and by key.
pub(super) struct Attempts(Throttle<String>);

impl Attempts {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Throttle::new(clock, WINDOW, REMEMBERED_MAX))
    }

    /// Notes an attempt from an address, or says how many seconds to wait first.
    pub(super) fn from(&self, client: IpAddr) -> Result<(), u64> {
        let who = match client.to_canonical() {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("{:x}", u128::from(address) >> 64),
        };
        self.note(who, PER_ADDRESS_MAX)
    }

    /// Notes an attempt with a key, by its digest.
    pub(super) fn with(&self, digest: String) -> Result<(), u64> {
        self.note(digest, PER_KEY_MAX)
    }

    fn note(&self, who: String, most: usize) -> Result<(), u64> {
        self.0.take(who, most).map_err(|wait| wait.as_secs().max(1))
    }
}

#[cfg(test)]
mod tests {
    use chassis::clock::ManualClock;
    use contract::time::UnixMillis;

    use super::*;

    #[test]
    fn an_address_tries_ten_times_in_five_minutes_and_its_neighbours_in_a_network_share() {
        let clock = Arc::new(ManualClock::at(UnixMillis(0)));
        let attempts = Attempts::new(clock.clone());
        for host in 1..=PER_ADDRESS_MAX {
            assert_eq!(attempts.from(format!("2001:db8::{host:x}").parse().unwrap()), Ok(()));
        }
        clock.advance(Duration::from_secs(100));
        assert_eq!(attempts.from("2001:db8::ffff".parse().unwrap()), Err(200));
        assert_eq!(attempts.from("2001:db8:0:1::1".parse().unwrap()), Ok(()));
        assert_eq!(attempts.from("192.0.2.1".parse().unwrap()), Ok(()));
        for _ in 0..PER_ADDRESS_MAX {
            assert_eq!(attempts.from("::ffff:192.0.2.2".parse().unwrap()), Ok(()));
        }
        assert_eq!(attempts.from("192.0.2.2".parse().unwrap()), Err(300), "two spellings of one address");
        assert_eq!(attempts.from("::ffff:192.0.2.3".parse().unwrap()), Ok(()), "others of IPv4 have their own");
        clock.advance(Duration::from_secs(200));
        assert_eq!(attempts.from("2001:db8::ffff".parse().unwrap()), Ok(()));
    }
}
