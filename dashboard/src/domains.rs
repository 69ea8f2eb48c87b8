//! Project → Domains: what is attached, what is missing, and what to do about it.

pub(super) mod add;
pub(super) mod change;
pub(super) mod detail;
pub(super) mod list;
pub(super) mod remove;
mod steps;
mod view;
