//! Configuration: a TOML file, the environment over it, and every mistake reported at once.
//!
//! A process reads its settings through [`Section`]s, each setting by name with the type it must have, so the types
//! are the list of checks. What nobody asked for is a mistake too. [`Reader::finish`] gives the finished value or all
//! [`Problems`], each with its line, its value and a way out.
//!
//! The environment wins: the setting `quota.on_store_down` of a process with the prefix `TOLLHOUSE_GATEWAY` is
//! overridden by `TOLLHOUSE_GATEWAY_QUOTA_ON_STORE_DOWN`. Secrets come as `name` (environment only in practice) or
//! `name_file`.

mod duration;
mod listen;
mod problem;
mod section;
mod source;
mod told;
mod watch;

pub use duration::parse_duration;
pub use listen::{Listen, NoPlace};
pub use problem::{Problem, Problems};
pub use section::Section;
pub use source::{Reader, Source};
pub use told::{Origin, Told};
pub use watch::{FileWatch, keep_log_filter};
