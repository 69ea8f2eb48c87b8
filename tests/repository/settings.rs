//! Every setting named in the documents and the command line exists in a process.

use std::collections::BTreeSet;

use crate::shipped::{SECRET, read};
use crate::tree;

const PROCESSES: [&str; 3] = ["gateway", "domains-service", "orders-service"];

/// Words behind a section's name and a dot that are not settings: endings of files and hosts.
const NO_SETTINGS: &[&str] =
    &["rs", "md", "toml", "yml", "json", "sqlite", "db", "key", "url", "pem", "sh", "localhost"];

/// The sections of a process's settings, from its sample file, including those commented out.
fn sections(process: &str) -> BTreeSet<String> {
    let text = tree::read(&format!("config/{process}.toml"));
    let names = text.lines().map(|line| line.trim_start_matches(['#', ' ']));
    let names = names.filter_map(|line| line.strip_prefix('[')?.trim_start_matches('[').split_once(']'));
    names.map(|(name, _)| name.to_owned()).filter(|name| name.chars().all(is_of_a_name)).collect()
}

fn is_of_a_name(letter: char) -> bool {
    letter.is_ascii_lowercase() || letter.is_ascii_digit() || "_.".contains(letter)
}

/// Whether a process has a setting with this name: it reports unknown ones that the environment gives.
fn is_known(process: &str, setting: &str) -> bool {
    let variable = format!("_{}", setting.replace('.', "_").to_uppercase());
    let mut environment = vec![("SECRET", SECRET), ("SEALING_SECRET", SECRET)];
    let text = match setting.split('.').collect::<Vec<_>>()[..] {
        // Settings in a list of tables have no environment variable.
        ["authorities", name] => format!("[[authorities]]\n{name} = \"?\"\n"),
        ["upstreams", upstream, _] if process == "gateway" => format!("[upstreams.{upstream}]\nendpoints = []\n"),
        _ => String::new(),
    };
    if !setting.starts_with("authorities.") {
        environment.push((&variable[1..], "?"));
    }
    let Err(problems) = read(process, process, &text, &environment) else { return true };
    let is_it = |named: &str| named.ends_with(&variable) || named == setting.replace("authorities.", "authorities[0].");
    !problems.list.iter().any(|problem| is_it(&problem.setting) && problem.way_out.contains("unknown setting"))
}

/// The settings in a text: a section's name, a dot and a word.
fn named(text: &str, sections: &BTreeSet<String>) -> BTreeSet<String> {
    let words = text.split(|letter: char| !is_of_a_name(letter));
    let words = words.map(|word| word.trim_matches('.')).filter(|word| {
        let Some((section, name)) = word.rsplit_once('.') else { return false };
        sections.contains(section) && !NO_SETTINGS.contains(&name)
    });
    words.map(str::to_owned).collect()
}

/// The quoted parts of a text.
fn quoted(text: &str, mark: char) -> String {
    let lines = text.lines().map(|line| line.split(mark).skip(1).step_by(2).collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_setting_that_is_named_exists() {
    let mut unknown = Vec::new();
    let mut count = 0;
    let all: BTreeSet<String> = PROCESSES.into_iter().flat_map(sections).collect();
    let documents = tree::files(".md").into_iter().filter(|path| path.starts_with("docs/") || !path.contains('/'));
    let programs = tree::files(".rs").into_iter().filter(|path| path.starts_with("tollhouse/src/"));
    let texts = documents
        .map(|path| (quoted(&tree::read(&path), '`'), path))
        .chain(programs.map(|path| {
            let text = tree::read(&path);
            (format!("{}\n{}", quoted(&text, '"'), quoted(&text, '`')), path)
        }))
        .collect::<Vec<_>>();
    for (text, path) in texts {
        for setting in named(&text, &all) {
            count += 1;
            if !PROCESSES.iter().any(|process| is_known(process, &setting)) {
                unknown.push(format!("{path}: {setting}"));
            }
        }
    }
    assert!(unknown.is_empty(), "no process has these settings: {unknown:#?}");
    assert!(count >= 20, "only {count} settings were found");
}

#[test]
fn an_unknown_setting_is_found() {
    let sections = sections("gateway");
    let found = named("requests: quota.anonymous_per_minute in gateway.toml, see quota.rs", &sections);
    assert_eq!(found.iter().collect::<Vec<_>>(), ["quota.anonymous_per_minute"]);
    assert!(!is_known("gateway", "quota.anonymous_per_minute"));
    assert!(is_known("gateway", "quota.failed_authentications_per_minute"));
    assert!(is_known("gateway", "upstreams.orders.total_timeout"));
}
