//! Times, as whole seconds or milliseconds since the Unix epoch.

use serde::{Deserialize, Serialize};

/// Whole seconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixSeconds(pub i64);

/// Whole milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(pub i64);

impl UnixSeconds {
    /// This time in milliseconds; saturates.
    pub const fn to_millis(self) -> UnixMillis {
        UnixMillis(self.0.saturating_mul(1_000))
    }

    /// The time `seconds` later (earlier if negative); saturates.
    #[must_use]
    pub const fn plus(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds))
    }
}

impl UnixMillis {
    /// The second that contains this time (rounded down, also before 1970).
    pub const fn to_seconds(self) -> UnixSeconds {
        UnixSeconds(self.0.div_euclid(1_000))
    }

    /// Milliseconds from `earlier` to this time; negative if `earlier` is later.
    pub const fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time `millis` later (earlier if negative); saturates.
    #[must_use]
    pub const fn plus(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_before_the_epoch_is_rounded_down() {
        assert_eq!(UnixMillis(-1).to_seconds(), UnixSeconds(-1));
        assert_eq!(UnixMillis(1_999).to_seconds(), UnixSeconds(1));
    }
}
