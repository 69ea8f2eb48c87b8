//! What a process was told: every setting that was given, where it came from, and its value as text. What a running
//! process was told and what a file says now can then be compared, whatever the settings mean. Secrets are named and
//! never shown.

use std::collections::BTreeMap;

use serde_json::{Value, json};

contract::words! {
    /// Where a setting came from.
    pub enum Origin {
        /// The file.
        File = "file",
        /// The environment, which wins.
        Environment = "environment",
    }
}

/// A setting that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) value: String,
    pub(super) origin: Origin,
    /// Whether it is what the setting is without it.
    pub(super) is_default: bool,
}

/// Every setting that was given, by its path. Those that were not have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told(pub(super) BTreeMap<String, Given>);

impl Told {
    /// As an object: path to `{ "value", "from", "default" }`, the last whether it changes nothing.
    pub fn to_json(&self) -> Value {
        let settings = self.0.iter().map(|(path, given)| {
            let Given { value, origin, is_default } = given;
            (path.clone(), json!({ "value": value, "from": origin.as_str(), "default": is_default }))
        });
        Value::Object(settings.collect())
    }

    /// The paths of settings that are not the same in `other`, those given in one of them alone included.
    pub fn differences<'a>(&'a self, other: &'a Self) -> Vec<&'a str> {
        let paths = self.0.keys().chain(other.0.keys().filter(|path| !self.0.contains_key(*path)));
        let mut paths: Vec<&str> =
            paths.filter(|path| self.value(path) != other.value(path)).map(String::as_str).collect();
        paths.sort_unstable();
        paths
    }

    /// Has these settings from now on as `newer` has them.
    pub fn take(&mut self, newer: &Self, paths: &[String]) {
        for path in paths {
            match newer.0.get(path) {
                Some(given) => drop(self.0.insert(path.clone(), given.clone())),
                None => drop(self.0.remove(path)),
            }
        }
    }

    /// A setting's value, if it was given and is not the default.
    pub fn own(&self, path: &str) -> Option<&str> {
        self.0.get(path).filter(|given| !given.is_default).map(|given| given.value.as_str())
    }

    /// A setting's value, if it was given.
    pub fn value(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(|given| given.value.as_str())
    }
}
