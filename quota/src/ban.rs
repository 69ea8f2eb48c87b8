//! Bans keys that keep sending after 429, and for how long (specification, section 8, rule 3).
//!
//! Pure rules over one key's history, and a bounded table of histories. A *strike* is a refusal more than a second
//! after the first 429 of its window: a client with 200 requests in flight when it reaches the limit is not banned.
//! Requests during a ban neither count nor prolong it, so that a client that never stops is admitted again on time.
//! [`super::Quota`] refuses banned keys, and the pipeline writes the response.

mod history;
mod notification;
mod table;

use std::time::Duration;

pub use contract::ban::{Ban, BanReason};
pub use notification::{Notification, Strikes};
pub use table::{BanTable, OFFENDERS_MAX};

contract::words! {
    /// Whether bans are imposed.
    #[derive(Default)]
    pub enum BanSwitch {
        /// Nothing is counted; only manual bans hold.
        Off = "off",
        /// Bans are decided and listed, but not enforced.
        Shadow = "shadow",
        /// Bans are enforced.
        #[default]
        On = "on",
    }
}

/// The parameters of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BanRules {
    /// Whether bans are imposed.
    pub switch: BanSwitch,
    /// Refusals this soon after the first 429 of the window are not strikes; 1 s.
    pub grace: Duration,
    /// Strikes within a minute that lead to a ban, for small limits; 20. Larger limits allow half of the limit.
    pub strikes_min: u32,
    /// Strikes that make a minute a bad one; 10.
    pub bad_minute: u32,
    /// Bad minutes in a row that lead to a ban; 3.
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
