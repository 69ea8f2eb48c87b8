//! Plans and their limits (specification, section 8).

use std::num::NonZeroU32;

use crate::text::words;
use crate::window::Window;

words! {
    /// A project's plan.
    pub enum Plan {
        /// 60 requests per minute, 1 000 per day; no custom domains.
        Free = "free",
        /// 300 per minute, 10 000 per day.
        Pro = "pro",
        /// 1 000 per minute, 100 000 per day.
        Business = "business",
        /// Agreed individually: the project carries its own limits.
        Enterprise = "enterprise",
    }
}

crate::message! {
    /// The requests that a project may make in each window. Never zero: a project without requests is suspended, not
    /// limited.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[serde(deny_unknown_fields)]
    pub answer Limits = "Requests." {
        per_minute: NonZeroU32 = "Requests per UTC minute.";
        per_day: NonZeroU32 = "Requests per UTC day.";
    }
}

impl Limits {
    /// Limits from plain numbers; `None` if either is zero.
    pub const fn new(per_minute: u32, per_day: u32) -> Option<Self> {
        match (NonZeroU32::new(per_minute), NonZeroU32::new(per_day)) {
            (Some(per_minute), Some(per_day)) => Some(Self { per_minute, per_day }),
            _ => None,
        }
    }

    /// The limit of one window.
    pub const fn of(self, window: Window) -> u32 {
        match window {
            Window::Minute => self.per_minute.get(),
            Window::Day => self.per_day.get(),
        }
    }
}

impl Plan {
    /// The plan's limits in the specification. Enterprise has none of its own: it uses those of Business until the
    /// project has its own limits.
    pub const fn stated_limits(self) -> Limits {
        let (per_minute, per_day) = match self {
            Self::Free => (60, 1_000),
            Self::Pro => (300, 10_000),
            Self::Business | Self::Enterprise => (1_000, 100_000),
        };
        match Limits::new(per_minute, per_day) {
            Some(limits) => limits,
            // Unreachable: the figures above are not zero. A const fn cannot unwrap without the panic lint.
            None => Limits { per_minute: NonZeroU32::MIN, per_day: NonZeroU32::MIN },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // rule: 8.6.1, 8.6.2, 8.6.3
    #[test]
    fn plans_grant_what_the_specification_states() {
        let stated: Vec<_> = [Plan::Free, Plan::Pro, Plan::Business]
            .map(|plan| (plan.stated_limits().of(Window::Minute), plan.stated_limits().of(Window::Day)))
            .into();
        assert_eq!(stated, [(60, 1_000), (300, 10_000), (1_000, 100_000)]);
    }

    #[test]
    fn an_unknown_plan_is_an_error_that_lists_the_choices() {
        let error = "platinum".parse::<Plan>().unwrap_err();
        assert_eq!(error.to_string(), "use one of: free, pro, business, enterprise");
    }

    #[test]
    fn blank_or_zero_limits_never_deserialise() {
        for bad in [
            "{}",
            r#"{"per_minute":0,"per_day":1}"#,
            r#"{"per_minute":null,"per_day":1}"#,
            r#"{"per_minute":-1,"per_day":1}"#,
        ] {
            assert!(serde_json::from_str::<Limits>(bad).is_err(), "{bad}");
        }
    }
}
