//! Every rule of the specification has a test, and every test that names a rule names one that exists.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree;

/// The numbers of `docs/reference/rules.md`: list items that begin with a bold number.
fn rules() -> Vec<String> {
    let text = tree::read("docs/reference/rules.md");
    let numbers = text.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**"));
    numbers.map(|(number, _)| number.to_owned()).collect()
}

/// Every number that a `// rule:` line names, with the places that name it. Only files with tests count.
fn named() -> BTreeMap<String, Vec<String>> {
    let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in tree::files(".rs") {
        let text = tree::read(&path);
        if !text.contains("#[test]") && !text.contains("#[tokio::test") {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            let Some(numbers) = line.trim_start().strip_prefix("// rule:") else { continue };
            for number in numbers.split(',') {
                named.entry(number.trim().to_owned()).or_default().push(format!("{path}:{}", index + 1));
            }
        }
    }
    named
}

#[test]
fn the_list_has_every_number_once() {
    let rules = rules();
    let unique: BTreeSet<_> = rules.iter().collect();
    assert_eq!(unique.len(), rules.len(), "a number of docs/reference/rules.md appears twice");
    assert!(rules.len() >= 80, "docs/reference/rules.md has lost rules: {} are left", rules.len());
}

#[test]
fn every_rule_has_a_test() {
    let named = named();
    let unproven: Vec<_> = rules().into_iter().filter(|rule| !named.contains_key(rule)).collect();
    assert!(unproven.is_empty(), "{} rules have no test that names them: {}", unproven.len(), unproven.join(", "));
}

/// Pages of promises with the tests that prove them, and how many tests each names at least.
const PROMISES: [(&str, usize); 3] = [
    ("docs/reference/domains-checks.md", 40),
    ("docs/reference/orders-checks.md", 40),
    ("docs/reference/http-checks.md", 90),
];

#[test]
fn every_test_that_a_page_of_promises_names_exists() {
    let sources: String = tree::files(".rs").iter().map(|path| tree::read(path)).collect();
    for (page, least) in PROMISES {
        let text = tree::read(page);
        let words = text.split('`').skip(1).step_by(2);
        // Names of tests are several words; headers, paths and commands are written in other ways.
        let is_test = |name: &&str| name.matches('_').count() > 1 && !name.contains(['/', ' ', '.']);
        let named: BTreeSet<&str> = words.filter(is_test).collect();
        assert!(named.len() >= least, "{page} has lost tests: {} are left", named.len());
        let missing: Vec<_> = named.into_iter().filter(|name| !sources.contains(&format!("fn {name}("))).collect();
        assert!(missing.is_empty(), "{page}: no test is called {missing:?}");
    }
}

#[test]
fn every_named_rule_exists() {
    let rules = rules();
    let unknown: Vec<_> = named().into_iter().filter(|(rule, _)| !rules.contains(rule)).collect();
    let lines: Vec<_> = unknown.iter().map(|(rule, places)| format!("{rule}: {}", places.join(", "))).collect();
    assert!(unknown.is_empty(), "these are not in docs/reference/rules.md:\n{}", lines.join("\n"));
}
