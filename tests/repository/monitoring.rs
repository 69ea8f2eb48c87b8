//! Alerts, their tests, their runbooks and the dashboards match each other and use existing metrics.

use std::collections::BTreeSet;

use crate::tree;

const ALERTS: &str = "config/alerts.yml";

/// The text behind `key: ` on all lines of a file.
fn values(text: &str, key: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.trim_start().trim_start_matches("- "));
    lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(": ")).map(|value| value.trim().to_owned()).collect()
}

fn set(values: Vec<String>) -> BTreeSet<String> {
    values.into_iter().collect()
}

/// Names of our metrics in an expression, without the suffixes of histograms.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|character: char| !(character.is_ascii_alphanumeric() || matches!(character, '_' | ':')));
    words
        .filter(|word| ["edge_", "orders_", "domains_", "listener_"].iter().any(|prefix| word.starts_with(prefix)))
        .map(|word| {
            let suffix = ["_bucket", "_count", "_sum"].iter().find_map(|suffix| word.strip_suffix(suffix));
            suffix.unwrap_or(word).to_owned()
        })
        .collect()
}

fn documented() -> BTreeSet<String> {
    let text = tree::read("docs/reference/metrics.md");
    text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).map(str::to_owned).collect()
}

#[test]
fn every_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() {
    let alerts = set(values(&tree::read(ALERTS), "alert"));
    assert!(alerts.len() > 20, "the search for alerts finds {alerts:?}");
    let tests = tree::read("config/alerts.test.yml");
    let (mut fires, mut silent, mut name) = (BTreeSet::new(), BTreeSet::new(), String::new());
    for line in tests.lines().map(str::trim) {
        if let Some(alert) = line.strip_prefix("- alertname: ") {
            alert.clone_into(&mut name);
        } else if line == "exp_alerts: []" {
            silent.insert(name.clone());
        } else if line == "exp_alerts:" {
            fires.insert(name.clone());
        }
    }
    assert_eq!((&fires, &silent), (&alerts, &alerts));
}

#[test]
fn every_alert_has_a_severity_a_summary_and_a_runbook_with_cause_and_next_step() {
    let text = tree::read(ALERTS);
    let rules: Vec<&str> = text.split("- alert: ").skip(1).collect();
    for rule in &rules {
        let alert = rule.lines().next().unwrap_or_default();
        assert!(rule.contains("severity: page") || rule.contains("severity: ticket"), "{alert} has no severity");
        assert!(rule.contains("summary: "), "{alert} has no summary");
        let page = values(rule, "runbook_url").pop().unwrap_or_else(|| panic!("{alert} has no runbook"));
        let text = tree::read(&page);
        let title = text.lines().next().unwrap_or_default();
        assert!(title.contains(alert), "{page} does not name {alert} in its title");
        for part in ["\n- **Means.** ", "\n- **Do.** "] {
            assert!(text.contains(part), "{page} lacks {part:?}: the cause and the next step");
        }
    }
    let pages = set(rules.iter().flat_map(|rule| values(rule, "runbook_url")).collect());
    let written: BTreeSet<_> =
        tree::files(".md").into_iter().filter(|path| path.starts_with("docs/operator/runbooks/")).collect();
    let orphans: Vec<_> = written.difference(&pages).filter(|path| !path.ends_with("README.md")).collect();
    assert!(orphans.is_empty(), "no alert leads to {orphans:?}");
}

#[test]
fn alerts_and_dashboards_use_existing_metrics() {
    let documented = documented();
    let boards: Vec<_> = tree::files(".json").into_iter().filter(|path| path.starts_with("config/grafana/")).collect();
    assert!(boards.len() >= 5, "dashboards: {boards:?}");
    let mut used = BTreeSet::new();
    for path in boards.iter().map(String::as_str).chain([ALERTS, "config/alerts.test.yml"]) {
        let text = tree::read(path);
        let metrics = metrics_in(&text);
        let unknown: Vec<_> = metrics.difference(&documented).filter(|name| !name.contains(':')).collect();
        assert!(unknown.is_empty(), "{path} uses {unknown:?}, which no process exports");
        used.extend(metrics);
    }
    let unseen: Vec<_> = documented.difference(&used).collect();
    assert!(unseen.is_empty(), "no dashboard or alert shows {unseen:?}");
}

#[test]
fn dashboards_use_only_recordings_that_exist() {
    let recordings = set(values(&tree::read(ALERTS), "record"));
    for path in tree::files(".json").into_iter().filter(|path| path.starts_with("config/grafana/")) {
        let text = tree::read(&path);
        for word in text.split(|character: char| !(character.is_ascii_alphanumeric() || matches!(character, '_' | ':')))
        {
            assert!(!word.starts_with("edge:") || recordings.contains(word), "{path} uses {word}");
        }
    }
}
