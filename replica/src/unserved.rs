//! Names of handshakes for which there is no certificate: they may be domains whose records became right a moment ago.
//! The control plane gets them with the reports, a bounded number at a time, and checks those that it knows.

use std::collections::HashMap;
use std::net::IpAddr;

use chassis::network::network_of;
use contract::feed::UNSERVED_MAX;
use contract::hostname::Hostname;
use parking_lot::Mutex;

/// Names kept between two reports. Further ones are dropped; a repeated handshake counts again.
const NAMES_MAX: usize = 4 * UNSERVED_MAX;

/// Of these, names of one client, so that one that tries many names leaves room for others.
const NAMES_OF_ONE_MAX: usize = 4;

/// The names since the last report, and the network of the first client that asked for each; `None` if unknown.
#[derive(Default)]
pub struct UnservedNames(Mutex<HashMap<Hostname, Option<IpAddr>>>);

impl UnservedNames {
    /// A handshake of `client` asked for this name.
    pub fn record(&self, name: &Hostname, client: Option<IpAddr>) {
        let network = client.map(network_of);
        let mut names = self.0.lock();
        let of_client = || names.values().filter(|other| **other == network).count();
        let has_room = names.len() < NAMES_MAX && (network.is_none() || of_client() < NAMES_OF_ONE_MAX);
        if has_room && !names.contains_key(name) {
            names.insert(name.clone(), network);
        }
    }

    /// The names for one report.
    pub(super) fn take(&self) -> Vec<Hostname> {
        let mut names = self.0.lock();
        let taken: Vec<Hostname> = names.keys().take(UNSERVED_MAX).cloned().collect();
        for name in &taken {
            names.remove(name);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn shop(number: usize) -> Hostname {
        format!("shop{number}.example").parse().unwrap()
    }

    #[test]
    fn one_client_leaves_room_for_the_names_of_others() {
        let names = UnservedNames::default();
        for number in 0..1_000 {
            // A subscriber's addresses are one client.
            let own: IpAddr = format!("2001:db8::{number:x}").parse().unwrap();
            names.record(&shop(number), Some(own));
        }
        names.record(&shop(1_000), Some("192.0.2.1".parse().unwrap()));
        let taken = names.take();
        assert_eq!((taken.len(), taken.contains(&shop(1_000))), (NAMES_OF_ONE_MAX + 1, true));
    }

    #[test]
    fn names_are_reported_once_and_bounded() {
        let names = UnservedNames::default();
        for number in 0..1_000 {
            names.record(&shop(number), None);
            names.record(&shop(number), None);
        }
        let mut reported = HashSet::new();
        for _ in 0..4 {
            let taken = names.take();
            assert_eq!(taken.len(), UNSERVED_MAX);
            reported.extend(taken);
        }
        assert_eq!((reported.len(), names.take().len()), (NAMES_MAX, 0));
        names.record(&shop(0), None);
        assert_eq!(names.take().len(), 1, "later it counts again");
    }
}
