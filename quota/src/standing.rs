//! Where a caller stands, and what the response headers say about it.
//!
//! Pure arithmetic over figures somebody else collected: no clock, no store. The three `X-RateLimit-*` headers of the
//! specification (section 8) have room for one window, so the rule which of the two they describe lives here, beside
//! `Retry-After` and the IETF fields that name both. Writing the headers is left to the decorator.

use contract::time::{UnixMillis, UnixSeconds};
use contract::window::Window;

/// Bytes that hold both windows of every plan.
const FIELD_BYTES_USUAL: usize = 64;

/// One window of a caller: how much there is, how much is left, when it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Requests the window grants.
    pub limit: u32,
    /// Requests left in the window; never above `limit`, and on one node never rising before `resets_at` while the
    /// limit stays.
    pub remaining: u32,
    /// First second of the next window, by the clock of whoever counts.
    pub resets_at: UnixSeconds,
}

/// Both windows of a caller at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The UTC minute.
    pub minute: Allowance,
    /// The UTC day; absent for an address without a key, which is limited by the minute alone.
    pub day: Option<Allowance>,
    /// The moment of the figures by the clock of whoever counts; never later than that clock, so that what is
    /// derived from it never points before a reset.
    pub as_of: UnixMillis,
}

/// How the request ended as far as its quota is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was let through, or refused for reasons that have nothing to do with a limit.
    Admitted,
    /// This window had nothing left.
    Refused(Window),
    /// The key is banned until this moment.
    Banned {
        /// First second at which the key is welcome again.
        until: UnixSeconds,
    },
}

/// The values of `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trio {
    /// The limit of the window described.
    pub limit: u32,
    /// Requests left in it.
    pub remaining: u32,
    /// Unix timestamp, in seconds, at which it resets.
    pub reset: i64,
}

impl Standing {
    /// The window that constrains the caller most: least remaining; on a tie the one that resets later, because
    /// waiting for the other would not help.
    pub fn binding(&self) -> Window {
        match self.day {
            Some(day)
                if (day.remaining, std::cmp::Reverse(day.resets_at))
                    < (self.minute.remaining, std::cmp::Reverse(self.minute.resets_at)) =>
            {
                Window::Day
            }
            _ => Window::Minute,
        }
    }

    /// The figures of one window; the minute's where there is no day.
    pub fn of(&self, window: Window) -> Allowance {
        match (window, self.day) {
            (Window::Day, Some(day)) => day,
            _ => self.minute,
        }
    }

    /// The three headers of the specification. They always describe one window: the binding one, or after a refusal
    /// the one that refused. During a ban nothing remains until the ban ends.
    pub fn trio(&self, outcome: Outcome) -> Trio {
        match outcome {
            Outcome::Admitted => {
                let allowance = self.of(self.binding());
                Trio { limit: allowance.limit, remaining: allowance.remaining, reset: allowance.resets_at.0 }
            }
            Outcome::Refused(window) => {
                let allowance = self.of(window);
                Trio { limit: allowance.limit, remaining: 0, reset: allowance.resets_at.0 }
            }
            Outcome::Banned { until } => Trio { limit: self.of(self.binding()).limit, remaining: 0, reset: until.0 },
        }
    }

    /// The value of `Retry-After` in seconds, for outcomes that have one: at least 1, and never so short that a
    /// client that waits exactly this long comes back before the reset.
    pub fn retry_after_seconds(&self, outcome: Outcome) -> Option<u32> {
        let until = match outcome {
            Outcome::Admitted => return None,
            Outcome::Refused(window) => self.of(window).resets_at,
            Outcome::Banned { until } => until,
        };
        Some(seconds_until(until, self.as_of).max(1))
    }

    /// The `RateLimit-Policy` field: every window's quota and length, whatever the outcome
    /// (draft-ietf-httpapi-ratelimit-headers-10). Example: `"minute";q=60;w=60, "day";q=1000;w=86400`.
    pub fn policy_field(&self) -> String {
        self.field([";q=", ";w="], |window, allowance| [i64::from(allowance.limit), window.seconds()])
    }

    /// The `RateLimit` field: what is left of every window and for how many seconds. After a refusal the window that
    /// refused has nothing left; during a ban no window has before the ban ends.
    pub fn ratelimit_field(&self, outcome: Outcome) -> String {
        self.field([";r=", ";t="], |window, allowance| {
            let seconds = seconds_until(allowance.resets_at, self.as_of);
            let (remaining, seconds) = match outcome {
                Outcome::Refused(refused) if refused == window => (0, seconds),
                Outcome::Banned { until } => (0, seconds.max(seconds_until(until, self.as_of))),
                Outcome::Admitted | Outcome::Refused(_) => (allowance.remaining, seconds),
            };
            [i64::from(remaining), i64::from(seconds)]
        })
    }

    /// A structured-field list with one item per window, named as in configuration and logs, and two parameters each.
    fn field(&self, names: [&str; 2], figures: impl Fn(Window, Allowance) -> [i64; 2]) -> String {
        let mut field = String::with_capacity(FIELD_BYTES_USUAL);
        let windows = [Some((Window::Minute, self.minute)), self.day.map(|day| (Window::Day, day))];
        for (window, allowance) in windows.into_iter().flatten() {
            for part in [if field.is_empty() { "\"" } else { ", \"" }, window.as_str(), "\""] {
                field.push_str(part);
            }
            for (name, figure) in names.into_iter().zip(figures(window, allowance)) {
                field.push_str(name);
                field.push_str(itoa::Buffer::new().format(figure));
            }
        }
        field
    }
}

/// Whole seconds from `now` until `until`, rounded up; 0 when it has passed.
pub(super) fn seconds_until(until: UnixSeconds, now: UnixMillis) -> u32 {
    let millis = until.to_millis().since(now).max(0);
    u32::try_from(millis.saturating_add(999) / 1_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2023-11-14T22:13:20Z, 20 seconds into its minute.
    const NOW: i64 = 1_700_000_000;

    fn standing(minute: (u32, u32), day: (u32, u32)) -> Standing {
        Standing {
            minute: Allowance { limit: minute.0, remaining: minute.1, resets_at: UnixSeconds(NOW + 40) },
            day: Some(Allowance { limit: day.0, remaining: day.1, resets_at: UnixSeconds(NOW + 6_400) }),
            as_of: UnixMillis(NOW * 1_000 + 1),
        }
    }

    // rule: 8.7
    #[test]
    fn the_first_request_of_a_free_plan_shows_the_minute() {
        let trio = standing((60, 59), (1_000, 999)).trio(Outcome::Admitted);
        assert_eq!(trio, Trio { limit: 60, remaining: 59, reset: NOW + 40 });
    }

    // rule: 8.7
    #[test]
    fn with_less_left_today_than_this_minute_the_headers_show_the_day() {
        let trio = standing((60, 59), (1_000, 29)).trio(Outcome::Admitted);
        assert_eq!(trio, Trio { limit: 1_000, remaining: 29, reset: NOW + 6_400 });
    }

    // rule: 8.7, 8.9
    #[test]
    fn on_a_tie_the_later_reset_is_shown() {
        assert_eq!(standing((60, 5), (1_000, 5)).binding(), Window::Day);
    }

    // rule: 8.7, 8.8
    #[test]
    fn after_a_refusal_the_window_that_refused_is_shown_with_nothing_left() {
        let refused = standing((60, 3), (1_000, 0));
        assert_eq!(
            refused.trio(Outcome::Refused(Window::Minute)),
            Trio { limit: 60, remaining: 0, reset: NOW + 40 },
            "even where the day has less"
        );
        assert_eq!(refused.retry_after_seconds(Outcome::Refused(Window::Day)), Some(6_400));
    }

    // rule: 8.12
    #[test]
    fn retry_after_is_rounded_up_and_at_least_one_second() {
        let mut at = standing((60, 0), (1_000, 940));
        let mut check = |as_of: i64, seconds: u32| {
            at.as_of = UnixMillis(as_of);
            assert_eq!(at.retry_after_seconds(Outcome::Refused(Window::Minute)), Some(seconds), "at {as_of}");
        };
        check(NOW * 1_000, 40);
        check(NOW * 1_000 + 1, 40);
        check(NOW * 1_000 + 39_000, 1);
        check(NOW * 1_000 + 39_999, 1);
        check(NOW * 1_000 + 40_000, 1);
        check(NOW * 1_000 + 99_000, 1);
    }

    // rule: 8.3
    #[test]
    fn during_a_ban_nothing_remains_until_it_ends() {
        let until = UnixSeconds(NOW + 300);
        let banned = standing((60, 12), (1_000, 400));
        let outcome = Outcome::Banned { until };
        assert_eq!(banned.trio(outcome), Trio { limit: 60, remaining: 0, reset: NOW + 300 });
        assert_eq!(banned.retry_after_seconds(outcome), Some(300));
        assert_eq!(banned.ratelimit_field(outcome), r#""minute";r=0;t=300, "day";r=0;t=6400"#);
    }

    #[test]
    fn the_ietf_fields_name_both_windows() {
        let at = standing((60, 59), (1_000, 941));
        assert_eq!(at.policy_field(), r#""minute";q=60;w=60, "day";q=1000;w=86400"#);
        assert_eq!(at.ratelimit_field(Outcome::Admitted), r#""minute";r=59;t=40, "day";r=941;t=6400"#);
    }

    #[test]
    fn an_address_has_a_minute_only() {
        let mut at = standing((60, 0), (1, 1));
        at.day = None;
        assert_eq!(at.policy_field(), r#""minute";q=60;w=60"#);
        assert_eq!(at.of(Window::Day), at.minute);
        assert_eq!(at.trio(Outcome::Refused(Window::Minute)).remaining, 0);
    }

    proptest! {
        // rule: 8.2, 8.12
        #[test]
        fn whoever_waits_retry_after_comes_back_at_or_after_the_reset(
            as_of in 0_i64..4_000_000_000_000,
            ahead in -5_i64..86_400,
            limit in 1_u32..1_000_000,
            used in 0_u32..2_000_000,
        ) {
            let resets_at = UnixSeconds(as_of / 1_000 + ahead);
            let minute = Allowance { limit, remaining: limit.saturating_sub(used), resets_at };
            let at = Standing { minute, day: None, as_of: UnixMillis(as_of) };
            for outcome in [Outcome::Refused(Window::Minute), Outcome::Banned { until: resets_at }] {
                let wait = i64::from(at.retry_after_seconds(outcome).unwrap());
                prop_assert!(wait >= 1);
                prop_assert!(as_of + wait * 1_000 >= resets_at.0 * 1_000);
                let trio = at.trio(outcome);
                prop_assert_eq!(trio.remaining, 0);
                prop_assert_eq!(trio.reset, resets_at.0);
            }
            let trio = at.trio(Outcome::Admitted);
            prop_assert!(trio.remaining <= trio.limit);
        }
    }
}
