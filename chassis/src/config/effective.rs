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

/// A setting that the process knows, whether it was given or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownSetting {
    /// Whether the setting has a default value. Without one it is required, or its absence has a meaning of its own.
    pub has_default: bool,
    /// The allowed range of a number or a time, as `1 to 100` or `1s to 5m`.
    pub range: Option<String>,
}

/// Every setting that was given, by its path, and every setting that the process knows. Those not given have their
/// defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffectiveSettings {
    pub(super) given: BTreeMap<String, Given>,
    pub(super) known: BTreeMap<String, KnownSetting>,
}

impl EffectiveSettings {
    /// As an object: path to `{ "value", "from", "default" }`; `default` tells whether the value equals the default.
    pub fn to_json(&self) -> Value {
        let settings = self.given.iter().map(|(path, given)| {
            let Given { value, origin, is_default } = given;
            (path.clone(), json!({ "value": value, "from": origin.as_str(), "default": is_default }))
        });
        Value::Object(settings.collect())
    }

    /// The paths of settings that differ in `other`, including those given in only one of them.
    pub fn differences<'a>(&'a self, other: &'a Self) -> Vec<&'a str> {
        let paths = self.given.keys().chain(other.given.keys().filter(|path| !self.given.contains_key(*path)));
        let mut paths: Vec<&str> =
            paths.filter(|path| self.value(path) != other.value(path)).map(String::as_str).collect();
        paths.sort_unstable();
        paths
    }

    /// Replaces these settings with those of `newer`.
    pub fn take(&mut self, newer: &Self, paths: &[String]) {
        for path in paths {
            match newer.given.get(path) {
                Some(given) => drop(self.given.insert(path.clone(), given.clone())),
                None => drop(self.given.remove(path)),
            }
        }
    }

    /// A setting's value, if it was given and differs from the default.
    pub fn own(&self, path: &str) -> Option<&str> {
        self.given.get(path).filter(|given| !given.is_default).map(|given| given.value.as_str())
    }

    /// A setting's value, if it was given.
    pub fn value(&self, path: &str) -> Option<&str> {
        self.given.get(path).map(|given| given.value.as_str())
    }

    /// The paths of all given settings.
    pub fn given(&self) -> impl Iterator<Item = &str> {
        self.given.keys().map(String::as_str)
    }

    /// Every setting and table that the process knows, by its path. Settings of tables that are maps or lists are known
    /// if the source has such a table.
    pub fn known(&self) -> &BTreeMap<String, KnownSetting> {
        &self.known
    }
}
