//! A caller's allowances, and the response headers that describe them.
//!
//! Pure arithmetic: no clock, no store. The three `X-RateLimit-*` headers of the specification (section 8) describe
//! only one window; this module chooses it, and also computes `Retry-After` and the IETF fields that describe both. The
//! decorator writes the headers.

use contract::time::{UnixMillis, UnixSeconds};
use contract::window::Window;

/// Length that fits both windows of every plan.
const FIELD_BYTES_USUAL: usize = 64;

/// One window of a caller: its limit, the remaining requests, and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Requests the window grants.
    pub limit: u32,
    /// Requests left in the window; never above `limit`. On one node it never rises before `resets_at` unless the limit
    /// changes.
    pub remaining: u32,
    /// First second of the next window, by the counter's clock.
    pub resets_at: UnixSeconds,
}

/// Both windows of a caller at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowances {
    /// The UTC minute.
    pub minute: Allowance,
    /// The UTC day; absent for an address without a key, which is limited per minute only.
    pub day: Option<Allowance>,
    /// The time of the figures by the counter's clock; never later than that clock, so that a time computed from it is
    /// never before the reset.
    pub as_of: UnixMillis,
}

/// The result of the request, as far as its quota is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaOutcome {
    /// It was admitted, or refused for reasons other than a limit.
    Admitted,
    /// This window was used up, or this node's share of it.
    Refused(Window),
    /// The key is banned until this time.
    Banned {
        /// First second after the ban.
        until: UnixSeconds,
    },
}

/// The values of `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitHeaders {
    /// The limit of the described window.
    pub limit: u32,
    /// Requests left in it.
    pub remaining: u32,
    /// Unix timestamp, in seconds, at which it resets.
    pub reset: i64,
}

impl Allowances {
    /// The window that constrains the caller most: the least remaining; on a tie the one that resets later, because
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

    /// The figures of one window; the minute's if there is no day.
    pub fn of(&self, window: Window) -> Allowance {
        match (window, self.day) {
            (Window::Day, Some(day)) => day,
            _ => self.minute,
        }
    }

    /// The three headers of the specification. They describe one window: the binding one, or after a refusal the one
    /// that refused. During a ban, Remaining is 0 until the ban ends.
    pub fn rate_limit_headers(&self, outcome: QuotaOutcome) -> RateLimitHeaders {
        match outcome {
            QuotaOutcome::Admitted => {
                let allowance = self.of(self.binding());
                RateLimitHeaders {
                    limit: allowance.limit,
                    remaining: allowance.remaining,
                    reset: allowance.resets_at.0,
                }
            }
            QuotaOutcome::Refused(window) => {
                let allowance = self.of(window);
                RateLimitHeaders { limit: allowance.limit, remaining: 0, reset: allowance.resets_at.0 }
            }
            QuotaOutcome::Banned { until } => {
                RateLimitHeaders { limit: self.of(self.binding()).limit, remaining: 0, reset: until.0 }
            }
        }
    }

    /// The value of `Retry-After` in seconds, for outcomes that have one: at least 1, and long enough that a client
    /// that waits exactly this long returns after the reset.
    pub fn retry_after_seconds(&self, outcome: QuotaOutcome) -> Option<u32> {
        let until = match outcome {
            QuotaOutcome::Admitted => return None,
            QuotaOutcome::Refused(window) => self.of(window).resets_at,
            QuotaOutcome::Banned { until } => until,
        };
        Some(seconds_until(until, self.as_of).max(1))
    }

    /// The `RateLimit-Policy` field: every window's quota and length, whatever the outcome
    /// (draft-ietf-httpapi-ratelimit-headers-10). Example: `"minute";q=60;w=60, "day";q=1000;w=86400`.
    pub fn policy_field(&self) -> String {
        self.field([";q=", ";w="], |window, allowance| [i64::from(allowance.limit), window.seconds()])
    }

    /// The `RateLimit` field: the remaining requests of every window and its remaining seconds. After a refusal the
    /// window that refused has 0 left; during a ban every window has 0 until the ban ends.
    pub fn ratelimit_field(&self, outcome: QuotaOutcome) -> String {
        self.field([";r=", ";t="], |window, allowance| {
            let seconds = seconds_until(allowance.resets_at, self.as_of);
            let (remaining, seconds) = match outcome {
                QuotaOutcome::Refused(refused) if refused == window => (0, seconds),
                QuotaOutcome::Banned { until } => (0, seconds.max(seconds_until(until, self.as_of))),
                QuotaOutcome::Admitted | QuotaOutcome::Refused(_) => (allowance.remaining, seconds),
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

    fn allowances(minute: (u32, u32), day: (u32, u32)) -> Allowances {
        Allowances {
            minute: Allowance { limit: minute.0, remaining: minute.1, resets_at: UnixSeconds(NOW + 40) },
            day: Some(Allowance { limit: day.0, remaining: day.1, resets_at: UnixSeconds(NOW + 6_400) }),
            as_of: UnixMillis(NOW * 1_000 + 1),
        }
    }

    // rule: 8.7
    #[test]
    fn the_first_request_of_a_free_plan_shows_the_minute() {
        let headers = allowances((60, 59), (1_000, 999)).rate_limit_headers(QuotaOutcome::Admitted);
        assert_eq!(headers, RateLimitHeaders { limit: 60, remaining: 59, reset: NOW + 40 });
    }

    // rule: 8.7
    #[test]
    fn with_less_left_today_than_this_minute_the_headers_show_the_day() {
        let headers = allowances((60, 59), (1_000, 29)).rate_limit_headers(QuotaOutcome::Admitted);
        assert_eq!(headers, RateLimitHeaders { limit: 1_000, remaining: 29, reset: NOW + 6_400 });
    }

    // rule: 8.7, 8.9
    #[test]
    fn on_a_tie_the_later_reset_is_shown() {
        assert_eq!(allowances((60, 5), (1_000, 5)).binding(), Window::Day);
    }

    // rule: 8.7, 8.8
    #[test]
    fn after_a_refusal_the_refusing_window_is_shown_with_zero_remaining() {
        let refused = allowances((60, 3), (1_000, 0));
        assert_eq!(
            refused.rate_limit_headers(QuotaOutcome::Refused(Window::Minute)),
            RateLimitHeaders { limit: 60, remaining: 0, reset: NOW + 40 },
            "even where the day has less"
        );
        assert_eq!(refused.retry_after_seconds(QuotaOutcome::Refused(Window::Day)), Some(6_400));
    }

    // rule: 8.12
    #[test]
    fn retry_after_is_rounded_up_and_at_least_one_second() {
        let mut at = allowances((60, 0), (1_000, 940));
        let mut check = |as_of: i64, seconds: u32| {
            at.as_of = UnixMillis(as_of);
            assert_eq!(at.retry_after_seconds(QuotaOutcome::Refused(Window::Minute)), Some(seconds), "at {as_of}");
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
        let banned = allowances((60, 12), (1_000, 400));
        let outcome = QuotaOutcome::Banned { until };
        assert_eq!(banned.rate_limit_headers(outcome), RateLimitHeaders { limit: 60, remaining: 0, reset: NOW + 300 });
        assert_eq!(banned.retry_after_seconds(outcome), Some(300));
        assert_eq!(banned.ratelimit_field(outcome), r#""minute";r=0;t=300, "day";r=0;t=6400"#);
    }

    #[test]
    fn the_ietf_fields_name_both_windows() {
        let at = allowances((60, 59), (1_000, 941));
        assert_eq!(at.policy_field(), r#""minute";q=60;w=60, "day";q=1000;w=86400"#);
        assert_eq!(at.ratelimit_field(QuotaOutcome::Admitted), r#""minute";r=59;t=40, "day";r=941;t=6400"#);
    }

    #[test]
    fn an_address_has_a_minute_only() {
        let mut at = allowances((60, 0), (1, 1));
        at.day = None;
        assert_eq!(at.policy_field(), r#""minute";q=60;w=60"#);
        assert_eq!(at.of(Window::Day), at.minute);
        assert_eq!(at.rate_limit_headers(QuotaOutcome::Refused(Window::Minute)).remaining, 0);
    }

    proptest! {
        // rule: 8.2, 8.12
        #[test]
        fn a_client_that_waits_retry_after_returns_at_or_after_the_reset(
            as_of in 0_i64..4_000_000_000_000,
            ahead in -5_i64..86_400,
            limit in 1_u32..1_000_000,
            used in 0_u32..2_000_000,
        ) {
            let resets_at = UnixSeconds(as_of / 1_000 + ahead);
            let minute = Allowance { limit, remaining: limit.saturating_sub(used), resets_at };
            let at = Allowances { minute, day: None, as_of: UnixMillis(as_of) };
            for outcome in [QuotaOutcome::Refused(Window::Minute), QuotaOutcome::Banned { until: resets_at }] {
                let wait = i64::from(at.retry_after_seconds(outcome).unwrap());
                prop_assert!(wait >= 1);
                prop_assert!(as_of + wait * 1_000 >= resets_at.0 * 1_000);
                let headers = at.rate_limit_headers(outcome);
                prop_assert_eq!(headers.remaining, 0);
                prop_assert_eq!(headers.reset, resets_at.0);
            }
            let headers = at.rate_limit_headers(QuotaOutcome::Admitted);
            prop_assert!(headers.remaining <= headers.limit);
        }
    }
}
