//! Limits failed authentications per client address.
//!
//! The table is local to the node and has a fixed size. The check comes before the key is read, so that guessing costs
//! little; only failures count, so that a valid key is never refused. Its figures go into the rate-limit headers of a
//! 401.
//!
//! An IPv6 client owns a /64, so a /64 counts as one address. When more addresses fail than the table holds, a new
//! address replaces the one with the fewest failures: persistent guessers keep their count, and the count of an address
//! with a single failure starts again.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::num::NonZeroU32;

use contract::time::UnixMillis;
use contract::window::Window;
use parking_lot::Mutex;

use super::allowance::{Allowance, Allowances};
use chassis::network::network_of;

/// Default failures per minute and address.
pub const FAILURES_PER_MINUTE: u32 = 60;
/// Addresses remembered at once: `SETS` times `WAYS`, at 16 bytes each 1 MiB.
pub const ADDRESSES_MAX: usize = SETS * WAYS;

const SETS: usize = 8_192;
const WAYS: usize = 8;

/// One address in one minute.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// Hash of the address; collisions of 64 bits are accepted.
    address: u64,
    /// The low bits of the minute's number: they distinguish minutes for eight thousand years.
    minute: u32,
    failures: u32,
}

/// Failed authentications of all client addresses.
pub struct FailedAuthenticationLimits {
    per_minute: NonZeroU32,
    hasher: RandomState,
    sets: Vec<Mutex<[Slot; WAYS]>>,
}

impl FailedAuthenticationLimits {
    /// An empty table. `hasher` is random per process, so that attackers cannot choose addresses that share a set.
    pub fn new(per_minute: NonZeroU32, hasher: RandomState) -> Self {
        Self { per_minute, hasher, sets: (0..SETS).map(|_| Mutex::default()).collect() }
    }

    /// The allowances of an address, without counting. `Err` when its failures of this minute are used up: answer 429
    /// `too_many_auth_failures` without reading the key.
    pub fn check(&self, address: IpAddr, now: UnixMillis) -> Result<Allowances, Allowances> {
        let failures = self.with_set(address, |set, address| {
            set.iter().find(|slot| slot.is(address, now)).map_or(0, |slot| slot.failures)
        });
        let allowances = self.allowances(failures, now);
        if allowances.minute.remaining == 0 { Err(allowances) } else { Ok(allowances) }
    }

    /// Counts one failed authentication; returns the allowances after it.
    pub fn fail(&self, address: IpAddr, now: UnixMillis) -> Allowances {
        let failures = self.with_set(address, |set, address| {
            let place = set.iter().position(|slot| slot.is(address, now)).or_else(|| {
                let cheapest = |(_, slot): &(usize, &Slot)| if slot.is_of(now) { slot.failures } else { 0 };
                set.iter().enumerate().min_by_key(cheapest).map(|(place, _)| place)
            });
            let Some(slot) = place.and_then(|place| set.get_mut(place)) else { return 1 };
            if !slot.is(address, now) {
                *slot = Slot { address, minute: minute_of(now), failures: 0 };
            }
            slot.failures = slot.failures.saturating_add(1);
            slot.failures
        });
        self.allowances(failures, now)
    }

    fn with_set<T>(&self, address: IpAddr, work: impl FnOnce(&mut [Slot; WAYS], u64) -> T) -> T {
        let hash = self.hasher.hash_one(network_of(address));
        // 0 marks an empty slot.
        let address = hash.max(1);
        let set = usize::try_from(hash % SETS as u64).unwrap_or(0);
        match self.sets.get(set) {
            Some(set) => work(&mut set.lock(), address),
            None => work(&mut [Slot::default(); WAYS], address),
        }
    }

    fn allowances(&self, failures: u32, now: UnixMillis) -> Allowances {
        let limit = self.per_minute.get();
        let resets_at = Window::Minute.ends_at(Window::Minute.index(now));
        let minute = Allowance { limit, remaining: limit.saturating_sub(failures), resets_at };
        Allowances { minute, day: None, as_of: now }
    }
}

impl Slot {
    fn is(&self, address: u64, now: UnixMillis) -> bool {
        self.address == address && self.is_of(now)
    }

    fn is_of(&self, now: UnixMillis) -> bool {
        self.minute == minute_of(now) && self.address != 0
    }
}

fn minute_of(now: UnixMillis) -> u32 {
    u32::try_from(Window::Minute.index(now).rem_euclid(i64::from(u32::MAX))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

    fn limits(per_minute: u32) -> FailedAuthenticationLimits {
        FailedAuthenticationLimits::new(NonZeroU32::new(per_minute).unwrap(), RandomState::new())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    // rule: 5.4
    #[test]
    fn each_failure_is_shown_and_the_last_one_blocks_until_the_minute_ends() {
        let limits = limits(3);
        let client = ip("192.0.2.1");
        for left in [2, 1, 0] {
            assert!(limits.check(client, NOW).is_ok());
            assert_eq!(limits.fail(client, NOW).minute.remaining, left);
        }
        let spent = limits.check(client, NOW).unwrap_err();
        assert_eq!(spent.minute.resets_at.0 % 60, 0);
        let last = UnixMillis(spent.minute.resets_at.0 * 1_000 - 1);
        assert!(limits.check(client, last).is_err());
        assert_eq!(limits.check(client, spent.minute.resets_at.to_millis()).unwrap().minute.remaining, 3);
    }

    #[test]
    fn checking_costs_nothing_and_others_are_not_affected() {
        let limits = limits(1);
        for _ in 0..10 {
            assert!(limits.check(ip("192.0.2.1"), NOW).is_ok());
        }
        limits.fail(ip("192.0.2.1"), NOW);
        assert!(limits.check(ip("192.0.2.1"), NOW).is_err());
        assert!(limits.check(ip("192.0.2.2"), NOW).is_ok());
    }

    #[test]
    fn an_ipv6_client_is_its_slash_64_and_a_mapped_address_is_ipv4() {
        let limits = limits(1);
        limits.fail(ip("2001:db8:1:2::1"), NOW);
        assert!(limits.check(ip("2001:db8:1:2:ffff::9"), NOW).is_err());
        assert!(limits.check(ip("2001:db8:1:3::1"), NOW).is_ok());
        limits.fail(ip("::ffff:192.0.2.7"), NOW);
        assert!(limits.check(ip("192.0.2.7"), NOW).is_err());
    }

    #[test]
    fn a_guesser_stays_caught_while_a_flood_of_addresses_passes() {
        let limits = limits(5);
        let guesser = ip("192.0.2.1");
        for _ in 0..5 {
            limits.fail(guesser, NOW);
        }
        for address in 0..(2 * ADDRESSES_MAX) {
            limits.fail(IpAddr::V4((0x0a00_0000 + u32::try_from(address).unwrap()).into()), NOW);
        }
        assert!(limits.check(guesser, NOW).is_err());
    }
}
