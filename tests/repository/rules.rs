//! Every rule of the specification and every promise has a test, and every rule or promise named by a test exists.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree;

/// Pages of numbered sentences, the word by which tests refer to them, and the minimum number.
const PAGES: [(&str, &str, usize); 2] =
    [("docs/reference/rules.md", "// rule:", 80), ("docs/reference/promises.md", "// promise:", 110)];

/// The numbers of a page: list items that begin with a bold number.
fn numbers(page: &str) -> Vec<String> {
    let text = tree::read(page);
    let numbers = text.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**"));
    numbers.map(|(number, _)| number.to_owned()).collect()
}

/// Every number on lines with this word, with its files. Only files with tests count.
fn named(word: &str) -> BTreeMap<String, Vec<String>> {
    let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in tree::files(".rs") {
        let text = tree::read(&path);
        let has_tests = text.contains("#[test]") || text.contains("#[tokio::test") || path.contains("tests/");
        if !has_tests {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            let Some(numbers) = line.trim_start().strip_prefix(word) else { continue };
            for number in numbers.split(',') {
                named.entry(number.trim().to_owned()).or_default().push(format!("{path}:{}", index + 1));
            }
        }
    }
    named
}

#[test]
fn pages_have_every_number_once() {
    for (page, _, least) in PAGES {
        let numbers = numbers(page);
        let unique: BTreeSet<_> = numbers.iter().collect();
        assert_eq!(unique.len(), numbers.len(), "a number of {page} appears twice");
        assert!(numbers.len() >= least, "{page} has lost numbers: {} are left", numbers.len());
    }
}

#[test]
fn every_rule_and_promise_has_a_test() {
    for (page, word, _) in PAGES {
        let named = named(word);
        let unproven: Vec<_> = numbers(page).into_iter().filter(|number| !named.contains_key(number)).collect();
        assert!(unproven.is_empty(), "{page}: no test names {}", unproven.join(", "));
    }
}

#[test]
fn every_named_rule_and_promise_exists() {
    for (page, word, _) in PAGES {
        let numbers = numbers(page);
        let unknown: Vec<_> = named(word).into_iter().filter(|(number, _)| !numbers.contains(number)).collect();
        let lines: Vec<_> = unknown.iter().map(|(number, places)| format!("{number}: {}", places.join(", "))).collect();
        assert!(unknown.is_empty(), "these are not in {page}:\n{}", lines.join("\n"));
    }
}
