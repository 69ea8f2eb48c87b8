//! Sources of settings: a text with line numbers, and the environment.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use toml_edit::{Document, Item, TableLike, Value};

use super::effective::{EffectiveSettings, Given, KnownSetting, Origin};
use super::problem::{Problems, SettingProblem};
use super::section::{Section, plain, without_password};

/// Endings of names whose values are never shown; the files that hold secrets are named `…_file`.
const SECRET_NAMES: [&str; 3] = ["secret", "password", "hmac_key"];

/// The largest file of settings.
pub(super) const SETTINGS_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The text of a settings file, which can be a pipe of the operator's shell.
fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let bytes = File::open(path)?.take(SETTINGS_BYTES_MAX + 1).read_to_string(&mut text)?;
    anyhow::ensure!(bytes as u64 <= SETTINGS_BYTES_MAX, "it is larger than {SETTINGS_BYTES_MAX} bytes");
    Ok(text)
}

/// A configuration file's text and the environment that overrides it.
pub struct Source {
    name: String,
    file: Option<PathBuf>,
    text: String,
    prefix: String,
    environment: BTreeMap<String, String>,
}

impl Source {
    /// Reads a file and the process's environment. Without a path the file counts as empty.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(path: Option<&Path>, prefix: &str) -> anyhow::Result<Self> {
        let (name, text) = match path {
            Some(path) => (
                path.display().to_string(),
                read(path).with_context(|| format!("reading configuration {}", path.display()))?,
            ),
            None => ("the environment".to_owned(), String::new()),
        };
        let file = path.map(Path::to_owned);
        Ok(Self { name, file, text, prefix: prefix.to_owned(), environment: environment() })
    }

    /// Settings from text and the given environment.
    pub fn from_text(name: &str, text: &str, prefix: &str, environment: BTreeMap<String, String>) -> Self {
        Self { name: name.to_owned(), file: None, text: text.to_owned(), prefix: prefix.to_owned(), environment }
    }

    /// The file of the settings.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Parses the text; a file that is not TOML is one problem with its line.
    pub fn reader(&self) -> Result<Reader<'_>, Problems> {
        match Document::parse(self.text.clone()) {
            Ok(document) => Ok(Reader { source: self, document, state: RefCell::default() }),
            Err(error) => Err(Problems {
                source_name: self.name.clone(),
                list: vec![SettingProblem {
                    line: error.span().map(|span| self.line_at(span.start)),
                    setting: "not valid TOML".to_owned(),
                    value: None,
                    way_out: error.message().to_owned(),
                }],
                effective: EffectiveSettings::default(),
            }),
        }
    }

    fn line_at(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
    }
}

/// A parsed source while a process reads its settings from it.
pub struct Reader<'a> {
    source: &'a Source,
    document: Document<String>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    problems: Vec<SettingProblem>,
    /// The settings and tables that the process read.
    known: BTreeMap<String, KnownSetting>,
    secrets: BTreeSet<String>,
    /// Given settings that equal their default.
    defaults: BTreeSet<String>,
}

impl Reader<'_> {
    /// The top of the file.
    pub fn root(&self) -> Section<'_> {
        Section::new(self, String::new(), Some(self.document.as_table()))
    }

    /// The finished value, or every mistake found, including unknown settings. `value` is `None` if the process could
    /// not build it, which only happens after a problem was reported.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Problems> {
        self.report_unknown("", self.document.as_table());
        self.report_unknown_environment();
        let effective = self.effective_settings();
        let mut list = self.state.into_inner().problems;
        list.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        match value {
            Some(value) if list.is_empty() => Ok(value),
            _ => Err(Problems { source_name: self.source.name.clone(), list, effective }),
        }
    }

    pub(super) fn environment(&self, path: &str) -> Option<&str> {
        self.source.environment.get(&self.variable(path)).map(String::as_str)
    }

    pub(super) fn variable(&self, path: &str) -> String {
        let name = path.replace(['.', '-'], "_").to_uppercase();
        format!("{}_{name}", self.source.prefix)
    }

    pub(super) fn know(&self, path: &str) {
        self.state.borrow_mut().known.entry(path.to_owned()).or_default();
    }

    pub(super) fn know_default(&self, path: &str) {
        self.state.borrow_mut().known.entry(path.to_owned()).or_default().has_default = true;
    }

    pub(super) fn know_range(&self, path: &str, range: String) {
        self.state.borrow_mut().known.entry(path.to_owned()).or_default().range = Some(range);
    }

    pub(super) fn mark_default(&self, path: &str) {
        self.state.borrow_mut().defaults.insert(path.to_owned());
    }

    pub(super) fn mark_secret(&self, path: &str) {
        self.state.borrow_mut().secrets.insert(path.to_owned());
    }

    /// Every known setting that is given, as text. Secrets are listed without their value.
    pub fn effective_settings(&self) -> EffectiveSettings {
        let mut effective = BTreeMap::new();
        flatten("", self.document.as_table(), &mut effective);
        let state = self.state.borrow();
        for path in state.known.keys() {
            if let Some(value) = self.environment(path) {
                effective.insert(path.clone(), given(value.to_owned(), Origin::Environment));
            }
        }
        for (path, Given { value, is_default, .. }) in &mut effective {
            *is_default = state.defaults.contains(path);
            // By name as well, because a comparison of texts does not know the settings' types.
            let name = path.rsplit('.').next().unwrap_or_default();
            if state.secrets.contains(path) || SECRET_NAMES.iter().any(|ending| name.ends_with(ending)) {
                "(secret)".clone_into(value);
            }
            *value = without_password(value);
        }
        EffectiveSettings { given: effective, known: state.known.clone() }
    }

    pub(super) fn report(&self, problem: SettingProblem) {
        self.state.borrow_mut().problems.push(problem);
    }

    pub(super) fn line_of(&self, item: &Item) -> Option<usize> {
        item.span().map(|span| self.source.line_at(span.start))
    }

    fn report_unknown(&self, path: &str, table: &dyn TableLike) {
        for (key, item) in table.iter() {
            let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
            if self.is_wrong_as_a_whole(&path) {
                // Its contents are not reported until its own type is right.
            } else if self.state.borrow().known.contains_key(&path) {
                match item {
                    Item::ArrayOfTables(tables) => {
                        for (index, table) in tables.iter().enumerate() {
                            self.report_unknown(&format!("{path}[{index}]"), table);
                        }
                    }
                    Item::Value(Value::Array(values)) => {
                        for (index, table) in values.iter().map(Value::as_inline_table).enumerate() {
                            if let Some(table) = table {
                                self.report_unknown(&format!("{path}[{index}]"), table);
                            }
                        }
                    }
                    _ => {
                        if let Some(table) = item.as_table_like() {
                            self.report_unknown(&path, table);
                        }
                    }
                }
            } else {
                let known = self.known_beside(&path);
                let line = table.key(key).and_then(toml_edit::Key::span).map(|span| self.source.line_at(span.start));
                let way_out = if known.is_empty() {
                    "unknown setting; remove it".to_owned()
                } else {
                    format!("unknown setting; known here: {}", known.join(", "))
                };
                self.report(SettingProblem { line, setting: path, value: None, way_out });
            }
        }
    }

    fn is_wrong_as_a_whole(&self, path: &str) -> bool {
        self.state.borrow().problems.iter().any(|problem| problem.setting == path)
    }

    fn known_beside(&self, path: &str) -> Vec<String> {
        let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
        let state = self.state.borrow();
        let beside = state.known.keys().filter_map(|known| match known.rsplit_once('.') {
            Some((other, name)) => (other == parent).then(|| name.to_owned()),
            None => parent.is_empty().then(|| known.clone()),
        });
        beside.filter(|name| !name.contains('[')).collect()
    }

    fn report_unknown_environment(&self) {
        let known: BTreeSet<String> = self.state.borrow().known.keys().map(|path| self.variable(path)).collect();
        let prefix = format!("{}_", self.source.prefix);
        for (variable, value) in self.source.environment.iter().filter(|(name, _)| name.starts_with(&prefix)) {
            if !known.contains(variable) && !is_of_a_service(variable, value) {
                self.report(SettingProblem {
                    line: None,
                    setting: format!("environment variable {variable}"),
                    value: None,
                    way_out: "unknown setting; unset it".to_owned(),
                });
            }
        }
    }
}

/// The environment as text. Bytes that are not Unicode are replaced; no setting accepts the replacement character.
fn environment() -> BTreeMap<String, String> {
    let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

/// Whether Kubernetes sets this variable in pods. It does so for every Service, and the name of a Service
/// (`tollhouse-gateway`) can match our prefix.
fn is_of_a_service(name: &str, value: &str) -> bool {
    const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
    if name.ends_with("_SERVICE_HOST") || name.ends_with("_SERVICE_PORT") || name.contains("_SERVICE_PORT_") {
        return true;
    }
    if name.ends_with("_PORT") && value.contains("://") {
        return true;
    }
    // `…_PORT_80_TCP`, and behind it `_PROTO`, `_PORT`, `_ADDR`.
    let Some((_, rest)) = name.split_once("_PORT_") else { return false };
    let mut parts = rest.split('_');
    let has_number = parts.next().is_some_and(|number| number.parse::<u16>().is_ok());
    has_number && parts.next().is_some_and(|protocol| PROTOCOLS.contains(&protocol))
}

const fn given(value: String, origin: Origin) -> Given {
    Given { value, origin, is_default: false }
}

/// Every value below a table by its path; members of lists of tables by their index.
fn flatten(path: &str, table: &dyn TableLike, effective: &mut BTreeMap<String, Given>) {
    for (key, item) in table.iter() {
        let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        if let Some(tables) = item.as_array_of_tables() {
            for (index, table) in tables.iter().enumerate() {
                flatten(&format!("{path}[{index}]"), table, effective);
            }
        } else if let Some(table) = item.as_table_like() {
            flatten(&path, table, effective);
        } else if let Some(array) = item.as_array() {
            if array.iter().any(Value::is_inline_table) {
                for (index, table) in array.iter().enumerate() {
                    if let Some(table) = table.as_inline_table() {
                        flatten(&format!("{path}[{index}]"), table, effective);
                    }
                }
            } else {
                let values: Vec<String> = array.iter().map(plain).collect();
                effective.insert(path, given(values.join(", "), Origin::File));
            }
        } else if let Some(value) = item.as_value() {
            effective.insert(path, given(plain(value), Origin::File));
        }
    }
}
