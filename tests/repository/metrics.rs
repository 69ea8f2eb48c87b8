//! `docs/reference/metrics.md` lists the metrics that the code registers, and no others.

use std::collections::BTreeSet;

use crate::tree;

/// Names of registered metrics: the text literal behind `registry,`, and the derived names of a database.
fn registered() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let is_program = |path: &String| path.contains("/src/") && !path.ends_with("tests.rs");
    for path in tree::files(".rs").into_iter().filter(is_program) {
        let text = tree::read(&path);
        let pieces: Vec<&str> = text.split("registry,").collect();
        for pair in pieces.windows(2) {
            let [before, rest] = pair else { unreachable!("windows of two") };
            let Some(name) = rest.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next()) else {
                continue;
            };
            if before.ends_with("StoreMetrics::register(&") {
                names.extend(["up", "connections", "connections_max"].map(|what| format!("{name}_store_{what}")));
            } else {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

/// Names in the first column of a table.
fn documented() -> BTreeSet<String> {
    let text = tree::read("docs/reference/metrics.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    rows.map(str::to_owned).collect()
}

#[test]
fn every_metric_is_documented_and_every_documented_metric_exists() {
    let (mut registered, documented) = (registered(), documented());
    assert!(registered.remove("build_info"), "the search for metrics finds nothing");
    let missing: Vec<_> = registered.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&registered).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "docs/reference/metrics.md lacks {missing:?} and invents {unknown:?}"
    );
}
