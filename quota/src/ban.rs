//! When a key that does not back off is banned, and for how long (specification, section 8, rule 3).
//!
//! Pure rules over one key's history, and a bounded table of histories. A *strike* is a refusal that arrived more than
//! a second after the first 429 of its window: a client that had 200 requests under way when the limit was reached is
//! no offender. Requests during a ban neither count nor prolong it, so that a client that never stops is let back in
//! on time. Refusing banned keys and writing the answer are left to [`super::Quota`] and the pipeline.

mod history;
mod news;
mod table;

use std::time::Duration;

pub use contract::ban::{Ban, BanReason};
pub use news::{News, Strikes};
pub use table::{BanTable, OFFENDERS_MAX};

contract::words! {
    /// Whether bans are imposed.
    #[derive(Default)]
    pub enum BanSwitch {
        /// Nothing is counted; only bans by hand hold.
        Off = "off",
        /// Bans are decided and listed, but nobody is refused for one.
        Shadow = "shadow",
        /// Bans are imposed.
        #[default]
        On = "on",
    }
}

/// The numbers of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BanRules {
    /// Whether bans are imposed.
    pub switch: BanSwitch,
    /// Refusals this soon after the first 429 of the window are forgiven; 1 s.
    pub grace: Duration,
    /// Strikes within a minute that are too many, however small the limit; 20. Larger limits allow half of themselves.
    pub strikes_min: u32,
    /// Strikes that make a minute a bad one; 10.
    pub bad_minute: u32,
    /// Bad minutes in a row that are too many; 3.
    pub bad_minutes: u32,
    /// Seconds of the first, second, third and every further ban within 24 hours; 60, 300, 900, 3600.
    pub seconds: [u32; 4],
}

impl Default for BanRules {
    fn default() -> Self {
        Self {
            switch: BanSwitch::On,
            grace: Duration::from_secs(1),
            strikes_min: 20,
            bad_minute: 10,
            bad_minutes: 3,
            seconds: [60, 300, 900, 3_600],
        }
    }
}

#[cfg(test)]
mod tests;
