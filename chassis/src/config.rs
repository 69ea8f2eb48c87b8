//! Configuration: a TOML file, overridden by the environment; all mistakes are reported together.
//!
//! A process reads its settings through [`Section`]s, each by name and type, so the types are the list of checks.
//! Unknown settings are mistakes too. [`Reader::finish`] returns the configuration or all [`Problems`], each with its
//! line, its value and a fix.
//!
//! The environment wins: `TOLLHOUSE_GATEWAY_QUOTA_ON_STORE_DOWN` overrides the setting `quota.on_store_down` of a
//! process with the prefix `TOLLHOUSE_GATEWAY`. A secret is given as `name` (usually in the environment) or
//! `name_file`.

mod duration;
mod listen;
mod problem;
mod section;
mod source;
mod effective;
mod watch;

pub use duration::parse_duration;
pub use effective::{EffectiveSettings, KnownSetting, Origin};
pub use listen::{Listen, NoPlace};
pub use problem::{Problems, SettingProblem};
pub use section::Section;
pub use source::{Reader, Source};
pub use watch::{FileWatch, keep_log_filter};

/// A struct from settings: every field's is read before any is missed, so that all mistakes are reported together.
/// `None` if one of them is a mistake: then it returns from the function around it. A field may use those above it, as
/// they were read.
#[macro_export]
macro_rules! settings {
    ($name:ident { $($field:ident: $read:expr,)+ }) => {{
        $(let $field = $read;)+
        Some($name { $($field: $field?,)+ })
    }};
}
