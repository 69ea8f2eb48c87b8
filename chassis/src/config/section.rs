//! Reads settings by name and type.

use std::any::TypeId;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use toml_edit::{Item, TableLike, Value};

use super::duration::{parse_duration, show_duration};
use super::problem::SettingProblem;
use super::source::Reader;
use crate::seal::SealingSecrets;
use crate::secret::Secret;

/// A table of settings. Every method marks the setting as known and reports its mistakes; a `None` that is not
/// documented as "absent" means that a problem was reported.
pub struct Section<'r> {
    reader: &'r Reader<'r>,
    path: String,
    table: Option<&'r dyn TableLike>,
}

/// A setting that was found: its text, and the line if it came from the file.
struct Found {
    text: String,
    line: Option<usize>,
    /// The value as written in the file or the environment, for reports of mistakes.
    raw: String,
}

impl<'r> Section<'r> {
    pub(super) fn new(reader: &'r Reader<'r>, path: String, table: Option<&'r dyn TableLike>) -> Self {
        Self { reader, path, table }
    }

    /// A table below this one; empty if absent.
    #[must_use]
    pub fn section(&self, name: &str) -> Section<'r> {
        let path = self.path_of(name);
        self.reader.know(&path);
        let item = self.item(name);
        let table = item.and_then(Item::as_table_like);
        if let (Some(item), None) = (item, table) {
            self.problem(&path, Some(item), format!("write it as a table: [{path}]"));
        }
        Section::new(self.reader, path, table)
    }

    /// The names in this table that are themselves tables: for maps such as `[upstreams.orders]`.
    pub fn table_names(&self) -> Vec<String> {
        let Some(table) = self.table else { return Vec::new() };
        table.iter().filter(|(_, item)| item.is_table_like()).map(|(name, _)| name.to_owned()).collect()
    }

    /// The tables of an array, `[[name]]` or `name = [{ … }]`.
    pub fn tables(&self, name: &str) -> Vec<Section<'r>> {
        let path = self.path_of(name);
        self.reader.know(&path);
        match self.item(name) {
            None => Vec::new(),
            Some(Item::ArrayOfTables(tables)) => tables
                .iter()
                .enumerate()
                .map(|(index, table)| Section::new(self.reader, format!("{path}[{index}]"), Some(table)))
                .collect(),
            Some(Item::Value(Value::Array(array))) if array.iter().all(Value::is_inline_table) => array
                .iter()
                .filter_map(Value::as_inline_table)
                .enumerate()
                .map(|(index, table)| Section::new(self.reader, format!("{path}[{index}]"), Some(table)))
                .collect(),
            Some(item) => {
                self.problem(&path, Some(item), format!("write it as a list of tables: [[{path}]]"));
                Vec::new()
            }
        }
    }

    /// Whether the setting is given.
    pub fn has(&self, name: &str) -> bool {
        self.item(name).is_some() || self.reader.environment(&self.path_of(name)).is_some()
    }

    /// A setting of any type that parses from text; `default` if absent.
    pub fn value<T>(&self, name: &str, default: T) -> Option<T>
    where
        T: FromStr + PartialEq + 'static,
        T::Err: Display,
    {
        self.read(name, default, parsed)
    }

    /// An optional setting: `Some(None)` if absent.
    pub fn optional<T>(&self, name: &str) -> Option<Option<T>>
    where
        T: FromStr + 'static,
        T::Err: Display,
    {
        match self.find(name).ok()? {
            None => Some(None),
            Some(found) => self.parse(name, &found, parsed).map(Some),
        }
    }

    /// A required setting; `example` completes "set it, for example …".
    pub fn required<T>(&self, name: &str, example: &str) -> Option<T>
    where
        T: FromStr + 'static,
        T::Err: Display,
    {
        let value = self.optional(name)?;
        if value.is_none() {
            self.missing(name, example);
        }
        value
    }

    /// A whole number within bounds.
    pub fn integer(&self, name: &str, default: u64, bounds: RangeInclusive<u64>) -> Option<u64> {
        self.reader.know_range(&self.path_of(name), range_of(&bounds));
        self.read(name, default, |text| number(text, &bounds))
    }

    /// An optional whole number within bounds: `Some(None)` if absent.
    pub fn optional_integer(&self, name: &str, bounds: RangeInclusive<u64>) -> Option<Option<u64>> {
        self.reader.know_range(&self.path_of(name), range_of(&bounds));
        match self.find(name).ok()? {
            None => Some(None),
            Some(found) => self.parse(name, &found, |text| number(text, &bounds)).map(Some),
        }
    }

    /// `true` or `false`.
    pub fn flag(&self, name: &str, default: bool) -> Option<bool> {
        self.read(name, default, |text| text.parse().map_err(|_| "use true or false".to_owned()))
    }

    /// A length of time with its unit: `250ms`, `10s`, `5m`, `24h`, `7d`.
    pub fn duration(&self, name: &str, default: Duration, bounds: RangeInclusive<Duration>) -> Option<Duration> {
        let range = format!("{} to {}", show_duration(*bounds.start()), show_duration(*bounds.end()));
        self.reader.know_range(&self.path_of(name), range.clone());
        self.read(name, default, |text| {
            let duration = parse_duration(text).filter(|duration| bounds.contains(duration));
            duration.ok_or_else(|| format!("use a time from {range}, for example \"{}\"", show_duration(default)))
        })
    }

    /// A setting that `parse` reads, or an error with a fix; `default` if absent. A given value that equals the default
    /// is recorded.
    fn read<T: PartialEq>(&self, name: &str, default: T, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        self.reader.know_default(&self.path_of(name));
        let Some(found) = self.find(name).ok()? else { return Some(default) };
        let value = self.parse(name, &found, parse)?;
        if value == default {
            self.reader.mark_default(&self.path_of(name));
        }
        Some(value)
    }

    /// Whether the file has a list here, and the environment does not override it.
    pub fn is_list(&self, name: &str) -> bool {
        let path = self.path_of(name);
        self.reader.environment(&path).is_none() && matches!(self.item(name), Some(Item::Value(Value::Array(_))))
    }

    /// A list; empty if absent. In the environment, commas separate.
    pub fn list<T>(&self, name: &str) -> Option<Vec<T>>
    where
        T: FromStr + 'static,
        T::Err: Display,
    {
        let path = self.path_of(name);
        self.reader.know(&path);
        let found: Vec<Found> = if let Some(text) = self.reader.environment(&path) {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            parts.map(|part| Found { text: part.to_owned(), line: None, raw: format!("{part:?}") }).collect()
        } else {
            match self.item(name) {
                None => return Some(Vec::new()),
                Some(Item::Value(Value::Array(array))) => {
                    let line = self.item(name).and_then(|item| self.reader.line_of(item));
                    array
                        .iter()
                        .map(|value| Found { text: plain(value), line, raw: value.to_string().trim().to_owned() })
                        .collect()
                }
                Some(item) => {
                    self.problem(&path, Some(item), format!("write it as a list: {name} = [\"…\"]"));
                    return None;
                }
            }
        };
        if found.is_empty() {
            self.reader.mark_default(&path);
        }
        let values: Vec<Option<T>> = found.iter().map(|found| self.parse(name, found, parsed)).collect();
        values.into_iter().collect()
    }

    /// A path; `Some(None)` if absent.
    pub fn path(&self, name: &str) -> Option<Option<PathBuf>> {
        self.optional(name)
    }

    /// A secret, from `name` or from the file `name_file`; `Some(None)` if absent.
    pub fn secret(&self, name: &str) -> Option<Option<Secret>> {
        self.secret_read_by(name, Secret::parse)
    }

    /// A password that another server compares, from `name` or from the file `name_file`: the text unchanged, of any
    /// length, even if it looks like base64. `Some(None)` if absent.
    pub fn password(&self, name: &str) -> Option<Option<Secret>> {
        self.secret_read_by(name, Secret::parse_password)
    }

    /// The secrets that seal private keys, the newest on the first line, from `name` or from the file `name_file`.
    /// `Some(None)` if absent.
    pub fn sealing_secrets(&self, name: &str) -> Option<Option<SealingSecrets>> {
        self.secret_read_by(name, SealingSecrets::parse)
    }

    /// Requires a secret that was read: a missing one is reported, with the path of a file as an example.
    pub fn required_secret<T>(&self, name: &str, example: &str, found: Option<Option<T>>) -> Option<T> {
        let secret = found?;
        if secret.is_none() {
            self.missing(&format!("{name}_file"), &format!("{example:?}"));
        }
        secret
    }

    fn secret_read_by<T>(&self, name: &str, parse: fn(&str) -> anyhow::Result<T>) -> Option<Option<T>> {
        self.reader.mark_secret(&self.path_of(name));
        let file: Option<PathBuf> = self.optional(&format!("{name}_file"))?;
        let Ok(inline) = self.find(name) else { return None };
        let secret = match (&inline, &file) {
            (Some(found), _) => parse(&found.text),
            (None, Some(file)) => Secret::load_with(file, parse),
            (None, None) => return Some(None),
        };
        match secret {
            Ok(secret) => Some(Some(secret)),
            Err(error) => {
                // The report omits the value.
                self.reader.report(SettingProblem {
                    line: inline.and_then(|found| found.line),
                    setting: self.path_of(name),
                    value: None,
                    way_out: format!("{error:#}"),
                });
                None
            }
        }
    }

    /// Reports a mistake that only the process can detect (two contradicting settings).
    pub fn complain(&self, name: &str, way_out: impl Into<String>) {
        let path = self.path_of(name);
        self.problem(&path, self.item(name), way_out.into());
    }

    /// Reports a missing required setting.
    pub fn missing(&self, name: &str, example: &str) {
        let path = self.path_of(name);
        let mut way_out = format!("set it, for example {name} = {example}");
        // Members of a list have no environment variable.
        if !path.contains('[') {
            way_out.push_str(&format!(", or {} in the environment", self.reader.variable(&path)));
        }
        self.reader.report(SettingProblem { line: None, setting: path, value: None, way_out });
    }

    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn item(&self, name: &str) -> Option<&'r Item> {
        self.table.and_then(|table| table.get(name))
    }

    fn find(&self, name: &str) -> Result<Option<Found>, ()> {
        let path = self.path_of(name);
        self.reader.know(&path);
        if let Some(text) = self.reader.environment(&path) {
            return Ok(Some(Found { text: text.to_owned(), line: None, raw: format!("{text:?}") }));
        }
        match self.item(name) {
            None => Ok(None),
            Some(Item::Value(value)) if !value.is_array() && !value.is_inline_table() => Ok(Some(Found {
                text: plain(value),
                line: self.item(name).and_then(|item| self.reader.line_of(item)),
                raw: value.to_string().trim().to_owned(),
            })),
            Some(item) => {
                self.problem(&path, Some(item), "write one value here".to_owned());
                Err(())
            }
        }
    }

    /// Parses a text with `parse`, or reports its error.
    fn parse<T>(&self, name: &str, found: &Found, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let report = |way_out| {
            self.reader.report(SettingProblem {
                line: found.line,
                setting: self.path_of(name),
                value: Some(without_password(&found.raw)),
                way_out,
            });
        };
        parse(&found.text).map_err(report).ok()
    }

    fn problem(&self, path: &str, item: Option<&Item>, way_out: String) {
        self.reader.report(SettingProblem {
            line: item.and_then(|item| self.reader.line_of(item)),
            setting: path.to_owned(),
            value: item.and_then(Item::as_value).map(|value| value.to_string().trim().to_owned()),
            way_out,
        });
    }
}

fn range_of(bounds: &RangeInclusive<u64>) -> String {
    format!("{} to {}", bounds.start(), bounds.end())
}

/// A whole number within bounds, or its error.
fn number(text: &str, bounds: &RangeInclusive<u64>) -> Result<u64, String> {
    let number = text.replace('_', "").parse::<u64>().ok().filter(|number| bounds.contains(number));
    number.ok_or_else(|| format!("use a whole number from {}", range_of(bounds)))
}

/// A value of any type that parses from text, or its error.
fn parsed<T>(text: &str) -> Result<T, String>
where
    T: FromStr + 'static,
    T::Err: Display,
{
    text.parse().map_err(|error: T::Err| hint::<T>().map_or_else(|| error.to_string(), str::to_owned))
}

/// A fix, for types whose errors contain none.
fn hint<T: 'static>() -> Option<&'static str> {
    (TypeId::of::<T>() == TypeId::of::<SocketAddr>())
        .then_some("use an address and a port, for example \"127.0.0.1:8080\"")
}

/// A value's text without TOML's quotes.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.value().clone(),
        other => other.to_string().trim().to_owned(),
    }
}

/// Removes the user and password from a URL, because other people may read the report.
pub(super) fn without_password(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 < at => format!("{}…{}", &url[..scheme + 3], &url[at..]),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests;
