//! The dashboard over HTTP, without script: every page, its states, and who may see it.

mod browser;
mod gateways;
mod pages;
mod people;
mod sessions;

pub(crate) use browser::{Browser, Page, origin};
