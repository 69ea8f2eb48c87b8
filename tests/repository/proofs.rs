//! `bench/run` runs tests that exist: a filter that matches no test runs none, and cargo calls that a success.

use crate::tree;

/// Options of `cargo test` and of its tests that a value follows.
const WITH_VALUE: [&str; 4] = ["-p", "--features", "--test", "--test-threads"];

/// Tests that `bench/run` names: the package (empty: the workspace), the binary, and the filter.
fn filters(script: &str) -> Vec<(String, String, String)> {
    let script = script.replace("\\\n", " ");
    let mut found = Vec::new();
    for line in script.lines().filter(|line| !line.starts_with('#') && !line.contains("\"$1\"")) {
        let (mut package, mut binary, mut named) = ("", "", Vec::new());
        if let Some((_, words)) = line.split_once("run_tests ") {
            let mut words = words.split_whitespace();
            package = words.next().unwrap();
            binary = words.next().unwrap();
            named = words.collect();
        } else if let Some((_, words)) = line.split_once("cargo test ") {
            let mut words = words.split_whitespace();
            while let Some(word) = words.next() {
                let value = if WITH_VALUE.contains(&word) { words.next().unwrap() } else { "" };
                match word {
                    "-p" => package = value,
                    "--test" => binary = value,
                    _ if word.starts_with('-') => {}
                    _ => named.push(word),
                }
            }
        }
        let filters = named.into_iter().filter(|word| *word != ";;");
        found.extend(filters.map(|filter| (package.to_owned(), binary.to_owned(), filter.to_owned())));
    }
    found
}

/// Whether a filter such as `module::part_of_a_name` selects a test of these files.
fn selects(filter: &str, files: &str) -> bool {
    let (modules, name) = filter.rsplit_once("::").unwrap_or(("", filter));
    let has_module = |module: &str| files.lines().any(|line| line.trim().ends_with(&format!("mod {module};")));
    let has_test = files.split("fn ").skip(1).filter_map(|rest| rest.split('(').next()).any(|test| test.contains(name));
    modules.split("::").filter(|module| !module.is_empty()).all(has_module) && has_test
}

#[test]
fn every_test_that_bench_names_exists() {
    let filters = filters(&tree::read("bench/run"));
    assert!(filters.len() >= 12, "the search finds only {filters:?}");
    for (package, binary, filter) in filters {
        // The tests of the whole are targets of tollhouse.
        let tests = match package.as_str() {
            "" | "tollhouse" => "tests/".to_owned(),
            name => format!("{name}/tests/"),
        };
        let paths = tree::files(".rs").into_iter();
        let paths = paths.filter(|path| path.starts_with(&tests) && path.contains(&format!("/{binary}/")));
        let files: String = paths.map(|path| tree::read(&path)).collect();
        assert!(selects(&filter, &files), "{package} {binary}: no test matches {filter}");
        assert!(!selects(&format!("not_{filter}"), &files), "{package} {binary}: everything matches");
    }
}
