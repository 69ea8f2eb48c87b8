//! Names of handshakes for which there is no certificate: they may be domains whose records became right a moment ago.
//! The control plane gets them with the reports, a bounded number at a time, and checks those that it knows.

use std::collections::HashSet;

use contract::feed::UNSERVED_MAX;
use contract::hostname::Hostname;
use parking_lot::Mutex;

/// Names kept between two reports. Further ones are dropped; a repeated handshake counts again.
const NAMES_MAX: usize = 4 * UNSERVED_MAX;

/// The names since the last report.
#[derive(Default)]
pub struct UnservedNames(Mutex<HashSet<Hostname>>);

impl UnservedNames {
    /// A handshake asked for this name.
    pub fn record(&self, name: &Hostname) {
        let mut names = self.0.lock();
        if names.len() < NAMES_MAX && !names.contains(name) {
            names.insert(name.clone());
        }
    }

    /// The names for one report.
    pub(super) fn take(&self) -> Vec<Hostname> {
        let mut names = self.0.lock();
        let taken: Vec<Hostname> = names.iter().take(UNSERVED_MAX).cloned().collect();
        for name in &taken {
            names.remove(name);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_reported_once_and_bounded() {
        let names = UnservedNames::default();
        for number in 0..1_000 {
            let name: Hostname = format!("shop{number}.example").parse().unwrap();
            names.record(&name);
            names.record(&name);
        }
        let mut reported = HashSet::new();
        for _ in 0..4 {
            let taken = names.take();
            assert_eq!(taken.len(), UNSERVED_MAX);
            reported.extend(taken);
        }
        assert_eq!((reported.len(), names.take().len()), (NAMES_MAX, 0));
        names.record(&"shop0.example".parse().unwrap());
        assert_eq!(names.take().len(), 1, "later it counts again");
    }
}
