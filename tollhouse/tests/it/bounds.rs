//! `docs/bounds.md` names every table, with tests that exist.

use std::collections::BTreeSet;

use crate::tree;

/// The first cells, in back quotes, of the table below a heading of the document.
pub(crate) fn rows(heading: &str) -> BTreeSet<String> {
    let text = tree::read("docs/bounds.md");
    let section = text.split("\n## ").find(|section| section.starts_with(heading)).unwrap_or_default().to_owned();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next().map(str::to_owned));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>());
    names.collect()
}

/// The tables that the migrations of a service make, for either database.
fn tables(service: &str) -> BTreeSet<String> {
    let files = tree::files(".sql").into_iter().filter(|path| path.starts_with(&format!("{service}/migrations/")));
    let mut tables = BTreeSet::new();
    for path in files {
        for line in tree::read(&path).lines() {
            let name = line.strip_prefix("CREATE TABLE ").map(|rest| rest.trim_start_matches("IF NOT EXISTS "));
            tables.extend(name.and_then(|rest| rest.split([' ', '(']).next()).map(str::to_owned));
        }
    }
    assert!(tables.len() > 3, "{service} has migrations");
    tables
}

#[test]
fn every_table_has_its_bound() {
    assert_eq!(rows("Tables of the control plane"), tables("domains-service"));
    assert_eq!(rows("Tables of the orders-service"), tables("orders-service"));
}

#[test]
fn every_test_of_a_bound_exists() {
    let sources: Vec<String> = tree::files(".rs").iter().map(|path| tree::read(path)).collect();
    let text = tree::read("docs/bounds.md");
    let named: BTreeSet<&str> =
        text.split('`').skip(1).step_by(2).filter(|word| word.matches('_').count() >= 4).collect();
    assert!(named.len() >= 12, "{named:?}");
    for test in named {
        assert!(sources.iter().any(|source| source.contains(&format!("fn {test}()"))), "there is no test {test}");
    }
}
