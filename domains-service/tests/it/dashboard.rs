//! The dashboard over HTTP, without script: every page, its states, and its readers.

mod browser;
mod gateways;
mod pages;
mod people;
mod sessions;

pub(crate) use browser::{Browser, Page, origin};
