//! The sample files `config/*.toml` and the settings that the programs read say the same: names, defaults and ranges.
//!
//! A value in a sample is the default. Where a platform needs another value, the comment of the line names the default
//! ("Default: …"), or says "Required" or "Default: none" if there is none. A default of a member of a table or list in
//! the line is written "`name`, by default VALUE". The comment of a number or a time contains its range. The comment of
//! a line is the block above it and the text behind it.

use std::collections::{BTreeMap, BTreeSet};

use chassis::config::{EffectiveSettings, KnownSetting, Source};
use toml_edit::{DocumentMut, Value};

use crate::tree;

const PROCESSES: [&str; 3] = ["gateway", "domains-service", "orders-service"];

/// A line of a sample that gives a setting.
struct Line {
    /// The setting, without indexes.
    path: String,
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

/// A path without indexes: `authorities[0].name` is `authorities.name`.
fn without_indexes(path: &str) -> String {
    path.split('.').map(|part| part.split('[').next().unwrap_or(part)).collect::<Vec<_>>().join(".")
}

/// A path without names of upstreams and without indexes: `upstreams.orders.routes[0].path` is `upstreams.routes.path`.
fn general(path: &str) -> String {
    let path = without_indexes(path);
    let mut parts: Vec<&str> = path.split('.').collect();
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
            found.push(Line { path, is_live, comment: format!("{above} {beside}") });
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

/// The lines of all upstreams that give a setting, or a table or list with it.
fn of<'l>(lines: &'l [Line], setting: &'l str) -> impl Iterator<Item = &'l Line> {
    lines.iter().filter(move |line| {
        let line = general(&line.path);
        setting.strip_prefix(line.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// The value at the start of a text; the error if it is not written as TOML, like `"30s"`, `false` or `256`.
fn value_at(text: &str) -> Result<Value, toml_edit::TomlError> {
    let value = match text.strip_prefix('"') {
        Some(quoted) => format!("\"{}\"", quoted.split('"').next().unwrap_or_default()),
        None => text.split([' ', '.', ',', ';']).next().unwrap_or_default().to_owned(),
    };
    value.parse()
}

/// Whether the process takes `value` for the default of the setting at `path` of the document.
fn is_default(process: &str, document: &DocumentMut, path: &str, value: &Value) -> bool {
    let mut document = document.clone();
    let mut place = document.as_item_mut();
    for part in path.split('.') {
        let (name, index) = part.trim_end_matches(']').split_once('[').unwrap_or((part, ""));
        place = &mut place[name];
        if let Ok(index) = index.parse::<usize>() {
            place = &mut place[index];
        }
    }
    *place = toml_edit::value(value.clone());
    let effective = effective(process, &document.to_string());
    effective.value(path).is_some() && effective.own(path).is_none()
}

/// The names and ranges in which a sample differs from the process.
fn differing_names(process: &str, text: &str, lines: &[Line]) -> Vec<String> {
    let mut found = Vec::new();
    let (mut given, mut known) = (BTreeSet::new(), BTreeMap::<String, KnownSetting>::new());
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
    found
}

/// The settings of a complete sample with another value than the default, unless their comments state the default, and
/// the defaults that are stated wrongly.
fn differing_defaults(process: &str, complete: &str, lines: &[Line]) -> Vec<String> {
    let document: DocumentMut = complete.parse().unwrap();
    let effective = effective(process, complete);
    let agrees = |line: &Line, path: &str| {
        let has_default = effective.known().get(path).is_some_and(|facts| facts.has_default);
        let is_own = effective.own(path).is_some();
        let is_member = general(&line.path) != general(path);
        let before = match path.rsplit_once('.') {
            Some((_, name)) if is_member => format!("`{name}`, by default "),
            _ => "Default: ".to_owned(),
        };
        match line.comment.split_once(&before).map(|(_, stated)| value_at(stated)) {
            Some(Ok(value)) => has_default && is_default(process, &document, path, &value),
            _ if has_default => !is_own,
            stated => !is_own || !line.is_live || is_member || stated.is_some() || line.comment.contains("Required"),
        }
    };
    // Settings of every upstream are explained once; a default belongs to one upstream.
    let differs = |path: &&str| {
        let (exact, setting) = (without_indexes(path), general(path));
        let has_default = effective.known().get(*path).is_some_and(|facts| facts.has_default);
        let is_given = has_default && lines.iter().any(|line| line.path == exact);
        !of(lines, &setting).any(|line| (!is_given || line.path == exact) && agrees(line, path))
    };
    let differing = effective.given().filter(differs);
    differing.map(|path| format!("{path} is not its default, or its comment states another default")).collect()
}

/// Everything in which a sample differs from the process.
fn differences(process: &str, text: &str) -> Vec<String> {
    let lines = lines(text);
    let mut found = differing_names(process, text, &lines);
    let choices: [fn(&[usize]) -> usize; 2] = [|places| places[0], |places| places[places.len() - 1]];
    for chosen in choices {
        found.extend(differing_defaults(process, &complete(text, chosen), &lines));
    }
    for line in &lines {
        let stated = line.comment.matches("Default: ").count() + line.comment.matches("`, by default ").count();
        if line.comment.to_lowercase().matches("default").count() != stated {
            found.push(format!("{}: its comment mentions a default that no test compares", line.path));
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
        ("Default: \"30s\".", "Default: \"20s\".", "upstreams.orders.total_timeout is not its default"),
        ("`open`, by default false", "`open`, by default true", "upstreams.orders.routes["),
        ("# first_byte_timeout = \"1m\"", "# first_byte_timeout = \"2m\"", "upstreams.shop.first_byte_timeout is not"),
        ("rises = 2 }", "rises = 3 }", "upstreams.orders.health.rises is not its default"),
        (
            "without it the\n# endpoint's)",
            "default: the\n# endpoint's)",
            "upstreams.orders.health: its comment mentions",
        ),
        ("Longest time of a call, 5ms to 1s.", "Longest time of a call.", "quota.redis.call_budget: its comment"),
    ] {
        assert!(sample.contains(from), "{from}");
        let found = differences("gateway", &sample.replace(from, to));
        assert!(found.iter().any(|difference| difference.starts_with(expected)), "{expected}: {found:?}");
    }
}

/// Mentions of defaults in the documentation that are not those of settings.
const OTHER_DEFAULTS: &[&str] =
    &["unless it is the default port", "`default` removes it", "each setting with its default"];

/// `` `setting`, by default VALUE `` in a page, also with an option of `tollhouse up`. NAME is an upstream's name.
/// In a row of a table about a process, the setting is that process's.
#[test]
fn defaults_in_the_documentation_are_those_of_the_programs() {
    let mut count = 0;
    let options = tree::read("docs/reference/up-help.txt").split_whitespace().collect::<Vec<_>>().join(" ");
    let folders = ["docs/operator/", "docs/reference/", "docs/tenant/"];
    let is_page = |path: &String| folders.iter().any(|folder| path.starts_with(folder));
    for page in tree::files(".md").into_iter().filter(is_page) {
        for line in tree::read(&page).lines() {
            let parts: Vec<&str> = line.split("`, by default ").collect();
            let mentions = line.to_lowercase().matches("default").count();
            let is_other = OTHER_DEFAULTS.iter().any(|other| line.contains(other));
            assert!(mentions < parts.len() || is_other, "{page}: write `setting`, by default VALUE: {line}");
            for pair in parts.windows(2) {
                let setting = pair[0].rsplit('`').next().unwrap_or_default();
                let quoted = pair[1].strip_prefix('`').and_then(|rest| rest.split('`').next());
                let stated = quoted.unwrap_or_else(|| pair[1].split([' ', '.', ',', ';']).next().unwrap_or_default());
                let value = if stated == "none" { "[]" } else { stated };
                let value: Value = value.parse().unwrap_or_else(|_| Value::from(stated));
                let path = setting.replace("NAME", "shop");
                let row = PROCESSES.into_iter().find(|process| line.starts_with(&format!("| {process} |")));
                let of_a_process = |process: &&str| is_default(process, &DocumentMut::new(), &path, &value);
                let is_right = match row {
                    _ if setting.starts_with("--") => {
                        let (_, option) = options.split_once(&format!("{setting} ")).unwrap();
                        option.split(" --").next().unwrap().contains(&format!("[default: {stated}]"))
                    }
                    Some(process) => of_a_process(&process),
                    None => PROCESSES.iter().any(of_a_process),
                };
                assert!(is_right, "{page}: {stated} is not the default of {setting}");
                count += 1;
            }
        }
    }
    assert!(count >= 15, "only {count} defaults were found in the documentation");
}
