//! The sample files `config/*.toml` and the settings that the programs read say the same: names, defaults and ranges.
//!
//! A value in a sample is the default. Where a platform needs another value, the comment of the line names the default
//! ("Default: …"), or says "Required" or "Default: none" if there is none. The comment of a number or a time contains
//! its range. The comment of a line is the block above it and the text behind it.

use std::collections::{BTreeMap, BTreeSet};

use chassis::config::{EffectiveSettings, KnownSetting, Source};
use toml_edit::{DocumentMut, Value};

use crate::tree;

const PROCESSES: [&str; 3] = ["gateway", "domains-service", "orders-service"];

/// A line of a sample that gives a setting.
struct Line {
    /// The setting, without names of upstreams and without indexes.
    setting: String,
    is_live: bool,
    comment: String,
}

/// The settings that a process reads from a text. Problems do not matter here: a sample names files that do not exist.
fn effective(process: &str, text: &str) -> EffectiveSettings {
    let source = Source::from_text(process, text, "SAMPLE", BTreeMap::new());
    let read = match process {
        "gateway" => gateway::config::Config::read(&source).map(|config| config.effective),
        "orders-service" => orders_service::Config::read(&source).map(|config| config.effective),
        _ => domains_service::Config::read(&source).map(|config| config.effective),
    };
    read.unwrap_or_else(|problems| problems.effective)
}

/// A path without names of upstreams and without indexes: `upstreams.orders.routes[0].path` is `upstreams.routes.path`.
fn general(path: &str) -> String {
    let mut parts: Vec<&str> = path.split('.').map(|part| part.split('[').next().unwrap_or(part)).collect();
    if parts.len() > 1 && parts[0] == "upstreams" {
        parts.remove(1);
    }
    parts.join(".")
}

/// The name and the value of a setting, live or commented out, and whether it is live.
fn setting_in(line: &str) -> Option<(&str, &str, bool)> {
    let bare = line.strip_prefix("# ").unwrap_or(line);
    let (name, value) = bare.split_once(" = ")?;
    let is_name =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    let is_value = value.starts_with(|first: char| "\"[{".contains(first) || first.is_ascii_digit())
        || ["true", "false"].iter().any(|word| value.starts_with(word));
    (is_name && is_value).then_some((name, value, bare.len() == line.len()))
}

/// The table that a line opens, live or commented out.
fn table_in(line: &str) -> Option<&str> {
    let bare = line.strip_prefix("# ").unwrap_or(line);
    let name = bare.strip_prefix("[[").and_then(|rest| rest.strip_suffix("]]"));
    name.or_else(|| bare.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')))
}

/// Every line of a sample that gives a setting, with its comment.
fn lines(text: &str) -> Vec<Line> {
    let (mut found, mut table, mut above) = (Vec::new(), String::new(), String::new());
    for line in text.lines() {
        if let Some(name) = table_in(line) {
            name.clone_into(&mut table);
            above.clear();
        } else if let Some((name, value, is_live)) = setting_in(line) {
            let path = if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
            let beside = value.split_once(" # ").map_or("", |(_, comment)| comment);
            found.push(Line { setting: general(&path), is_live, comment: format!("{above} {beside}") });
            above.clear();
        } else if let Some(comment) = line.strip_prefix('#') {
            above.push_str(comment);
        } else {
            above.clear();
        }
    }
    found
}

/// The sample with the settings that are commented out. Of a setting that is commented out twice in a table, `chosen`
/// takes the first or the last one.
fn complete(text: &str, chosen: fn(&[usize]) -> usize) -> String {
    let mut places: BTreeMap<(String, &str), Vec<usize>> = BTreeMap::new();
    let mut table = String::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(name) = table_in(line) {
            name.clone_into(&mut table);
        } else if let Some((name, _, _)) = setting_in(line) {
            places.entry((table.clone(), name)).or_default().push(index);
        }
    }
    let taken: BTreeSet<usize> = places.values().map(|places| chosen(places)).collect();
    let line = |(index, line): (usize, &str)| {
        let is_setting = setting_in(line).is_some();
        if is_setting && !taken.contains(&index) {
            return String::new();
        }
        let is_live = is_setting || table_in(line).is_some();
        if is_live { line.strip_prefix("# ").unwrap_or(line).to_owned() } else { line.to_owned() }
    };
    text.lines().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

/// The lines that give a setting, or a table or list with it.
fn of<'l>(lines: &'l [Line], setting: &'l str) -> impl Iterator<Item = &'l Line> {
    lines.iter().filter(move |line| {
        let rest = setting.strip_prefix(line.setting.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// The value behind "Default: " in a comment, if it is written as TOML: `"30s"`, `false`, `256`.
fn stated_default(comment: &str) -> Option<Value> {
    let (_, stated) = comment.split_once("Default: ")?;
    let stated = if let Some(text) = stated.strip_prefix('"') {
        format!("\"{}\"", text.split('"').next()?)
    } else {
        stated.split([' ', '.', ',', ';']).next()?.to_owned()
    };
    stated.parse().ok()
}

/// Whether the process takes `value` for the default of the setting at `path` of the document.
fn is_default(process: &str, document: &DocumentMut, path: &str, value: &Value) -> bool {
    let mut document = document.clone();
    let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
    let mut place = document.as_item_mut();
    for part in table.split('.').filter(|part| !part.is_empty()) {
        place = &mut place[part];
    }
    place[name] = toml_edit::value(value.clone());
    let effective = effective(process, &document.to_string());
    effective.value(path).is_some() && effective.own(path).is_none()
}

/// The names and ranges in which a sample differs from the process, and the settings that the process knows.
fn differing_names(process: &str, text: &str, lines: &[Line]) -> (Vec<String>, BTreeMap<String, KnownSetting>) {
    let mut found = Vec::new();
    let (mut given, mut known) = (BTreeSet::new(), BTreeMap::new());
    for complete in [complete(text, |places| places[0]), complete(text, |places| places[places.len() - 1])] {
        complete.parse::<DocumentMut>().unwrap();
        let effective = effective(process, &complete);
        given.extend(effective.given().map(general));
        known.extend(effective.known().iter().map(|(path, setting)| (general(path), setting.clone())));
    }
    for (setting, facts) in &known {
        let is_table = known.keys().any(|other| other.starts_with(&format!("{setting}.")));
        if !given.contains(setting) && !is_table && !given.contains(&format!("{setting}_file")) {
            found.push(format!("{setting} is missing"));
        }
        if let Some(range) = &facts.range
            && !of(lines, setting).any(|line| line.comment.contains(range.as_str()))
        {
            found.push(format!("{setting}: its comment does not contain its range, {range}"));
        }
    }
    let unknown = given.iter().filter(|setting| !known.contains_key(*setting));
    found.extend(unknown.map(|setting| format!("{setting} is unknown")));
    (found, known)
}

/// Everything in which a sample differs from the process.
fn differences(process: &str, text: &str) -> Vec<String> {
    let lines = lines(text);
    let (mut found, known) = differing_names(process, text, &lines);
    let has_default = |setting: &str| known.get(setting).is_some_and(|facts| facts.has_default);
    let complete = effective(process, &complete(text, |places| places[0]));
    for setting in complete.given().filter(|path| complete.own(path).is_some()).map(general) {
        let is_example = of(&lines, &setting).all(|line| !line.is_live);
        let is_stated = of(&lines, &setting).any(|line| line.comment.contains("Default: "));
        if has_default(&setting) && is_example && !is_stated {
            found
                .push(format!("{setting}: the example is not its default, and its comment does not state the default"));
        }
    }
    let live: DocumentMut = text.parse().unwrap();
    let given = effective(process, text);
    for path in given.given().filter(|path| given.own(path).is_some() && !path.contains('[')) {
        let setting = general(path);
        let is_stated = |comment: &str| match stated_default(comment) {
            Some(stated) => has_default(&setting) && is_default(process, &live, path, &stated),
            None => !has_default(&setting) && ["Required", "Default: none"].iter().any(|words| comment.contains(words)),
        };
        if !of(&lines, &setting).any(|line| line.is_live && is_stated(&line.comment)) {
            found.push(format!("{setting} is not its default, and its comment does not state the default correctly"));
        }
    }
    found
}

#[test]
fn samples_have_every_setting_with_its_default_and_range() {
    for process in PROCESSES {
        let differences = differences(process, &tree::read(&format!("config/{process}.toml")));
        assert!(differences.is_empty(), "config/{process}.toml: {differences:#?}");
    }
}

#[test]
fn every_kind_of_difference_is_found() {
    let sample = tree::read("config/gateway.toml");
    for (from, to, expected) in [
        ("call_budget = \"50ms\"\n", "", "quota.redis.call_budget is missing"),
        ("# threads = 2\n", "# workers = 2\n", "workers is unknown"),
        ("lame_duck = \"5s\"", "lame_duck = \"6s\"", "drain.lame_duck is not its default"),
        ("Default: \"30s\".", "Default: \"20s\".", "upstreams.total_timeout is not its default"),
        ("Longest time of a call, 5ms to 1s.", "Longest time of a call.", "quota.redis.call_budget: its comment"),
    ] {
        assert!(sample.contains(from), "{from}");
        let found = differences("gateway", &sample.replace(from, to));
        assert!(found.iter().any(|difference| difference.starts_with(expected)), "{expected}: {found:?}");
    }
}

/// `` `setting`, by default VALUE `` in a page.
#[test]
fn defaults_in_the_documentation_are_those_of_the_programs() {
    let mut count = 0;
    for page in tree::files(".md").into_iter().filter(|path| path.starts_with("docs/")) {
        for (before, after) in tree::read(&page).split('\n').filter_map(|line| line.split_once("`, by default ")) {
            let setting = before.rsplit('`').next().unwrap_or_default();
            let stated = after.trim_start_matches('`').split(['`', ' ', '.', ',', ';']).next().unwrap_or_default();
            let value = if stated == "none" { "[]".to_owned() } else { stated.to_owned() };
            let value: Value = value.parse().unwrap_or_else(|_| Value::from(stated));
            let is_right = PROCESSES.iter().any(|process| {
                let mut document = DocumentMut::new();
                if let Some((table, _)) = setting.rsplit_once('.') {
                    document = format!("[{table}]\n").parse().unwrap();
                }
                is_default(process, &document, setting, &value)
            });
            assert!(is_right, "{page}: {stated} is not the default of {setting}");
            count += 1;
        }
    }
    assert!(count >= 4, "only {count} defaults were found in the documentation");
}
