//! Effective settings: every setting that was given, its source, and its value as text. This allows a comparison of a
//! running process with a file, independent of the meaning of the settings. Secrets are listed without their value.

use std::collections::BTreeMap;

use serde_json::{Value, json};

contract::words! {
    /// The source of a setting.
    pub enum Origin {
        /// The file.
        File = "file",
        /// The environment, which overrides the file.
        Environment = "environment",
    }
}

/// A setting that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) value: String,
    pub(super) origin: Origin,
    /// Whether the value equals the default.
    pub(super) is_default: bool,
}

/// Every setting that was given, by its path. All others have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectiveSettings(pub(super) BTreeMap<String, Given>);

impl EffectiveSettings {
    /// As an object: path to `{ "value", "from", "default" }`; `default` tells whether the value equals the default.
    pub fn to_json(&self) -> Value {
        let settings = self.0.iter().map(|(path, given)| {
            let Given { value, origin, is_default } = given;
            (path.clone(), json!({ "value": value, "from": origin.as_str(), "default": is_default }))
        });
        Value::Object(settings.collect())
    }

    /// The paths of settings that differ in `other`, including those given in only one of them.
    pub fn differences<'a>(&'a self, other: &'a Self) -> Vec<&'a str> {
        let paths = self.0.keys().chain(other.0.keys().filter(|path| !self.0.contains_key(*path)));
        let mut paths: Vec<&str> =
            paths.filter(|path| self.value(path) != other.value(path)).map(String::as_str).collect();
        paths.sort_unstable();
        paths
    }

    /// Replaces these settings by those of `newer`.
    pub fn take(&mut self, newer: &Self, paths: &[String]) {
        for path in paths {
            match newer.0.get(path) {
                Some(given) => drop(self.0.insert(path.clone(), given.clone())),
                None => drop(self.0.remove(path)),
            }
        }
    }

    /// A setting's value, if it was given and differs from the default.
    pub fn own(&self, path: &str) -> Option<&str> {
        self.0.get(path).filter(|given| !given.is_default).map(|given| given.value.as_str())
    }

    /// A setting's value, if it was given.
    pub fn value(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(|given| given.value.as_str())
    }
}
