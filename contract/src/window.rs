//! Quota windows: fixed, aligned to the UTC minute and the UTC day.
//!
//! The specification (section 8) names a "Unix timestamp at which the limit resets", so a window has a fixed end.
//! Calendar windows have one that every node can compute without communication, and that survives the loss of the
//! store.

use crate::text::words;
use crate::time::{UnixMillis, UnixSeconds};

words! {
    /// The two windows every plan limits.
    pub enum Window {
        /// The UTC minute: `[60 n, 60 (n + 1))` seconds since the epoch.
        Minute = "minute",
        /// The UTC day: `[86 400 n, 86 400 (n + 1))` seconds since the epoch (Unix time has no leap seconds).
        Day = "day",
    }
}

impl Window {
    /// Length in seconds.
    pub const fn seconds(self) -> i64 {
        match self {
            Self::Minute => 60,
            Self::Day => 86_400,
        }
    }

    /// The number of the window that contains `now`, counted from the epoch.
    pub const fn index(self, now: UnixMillis) -> i64 {
        now.0.div_euclid(self.seconds() * 1_000)
    }

    /// First second of window number `index`.
    pub const fn starts_at(self, index: i64) -> UnixSeconds {
        UnixSeconds(index.saturating_mul(self.seconds()))
    }

    /// First second after window number `index`: where its limit resets.
    pub const fn ends_at(self, index: i64) -> UnixSeconds {
        UnixSeconds(index.saturating_add(1).saturating_mul(self.seconds()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_millisecond_belongs_to_the_old_minute_and_the_next_to_the_new() {
        assert_eq!(Window::Minute.index(UnixMillis(59_999)), 0);
        assert_eq!(Window::Minute.index(UnixMillis(60_000)), 1);
        assert_eq!(Window::Minute.ends_at(0), UnixSeconds(60));
    }

    #[test]
    fn a_leap_day_is_a_day_like_any_other() {
        // 2028-02-29T12:00:00Z
        let noon = UnixMillis(1_835_438_400_000);
        let day = Window::Day.index(noon);
        assert_eq!(Window::Day.ends_at(day), UnixSeconds(1_835_438_400 + 12 * 3_600));
    }
}
