//! `docs/reference/bounds.md` names every table, with tests that exist.

use std::collections::BTreeSet;

use crate::tree;

/// The first cells, in back quotes, of the table below a heading of the document.
pub(crate) fn rows(heading: &str) -> BTreeSet<String> {
    let text = tree::read("docs/reference/bounds.md");
    let section = text.split("\n## ").find(|section| section.starts_with(heading)).unwrap_or_default().to_owned();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next().map(str::to_owned));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>());
    names.collect()
}

/// The tables that the migrations of a service create, for either database.
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

/// Another test checks that the named tests exist; the tests themselves fill the table.
#[test]
fn every_table_that_can_grow_names_a_test() {
    let text = tree::read("docs/reference/bounds.md");
    for heading in ["Tables of the control plane", "Tables of the orders-service"] {
        let section = text.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
        for row in section.lines().filter(|line| line.starts_with("| `")) {
            let test = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
            assert!(test.contains('`') || row.contains("a fixed set"), "no test is named for {row}");
        }
    }
}

/// Whether a line declares a field that can grow.
fn is_growing_field(line: &str) -> bool {
    let field = line
        .trim_start()
        .trim_start_matches("pub(crate) ")
        .trim_start_matches("pub(super) ")
        .trim_start_matches("pub ");
    let Some((name, kind)) = field.split_once(": ") else { return false };
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let maps = ["HashMap<", "HashSet<", "BTreeMap<", "BTreeSet<", "VecDeque<", "Cache<"];
    // Only shared lists count: a list of a single value is dropped with it.
    let lists = ["Mutex<Vec<", "RwLock<Vec<", "ArcSwap<Vec<"];
    let mut grows = maps.iter().chain(&lists);
    line.starts_with("    ") && is_name && kind.ends_with(',') && grows.any(|grows| kind.contains(grows))
}

#[test]
fn every_map_and_shared_list_in_memory_has_its_bound() {
    let processes = [
        "chassis/src/",
        "dashboard/src/",
        "domains-service/src/",
        "gateway/src/",
        "listener/src/",
        "orders-service/src/",
        "quota/src/",
        "replica/src/",
        "upstreams/src/",
        "verification/src/",
    ];
    let of_tests = ["/tests", "fakes", "trial", "fuzzing"];
    let sources = tree::files(".rs").into_iter().filter(|path| {
        processes.iter().any(|start| path.starts_with(start)) && !of_tests.iter().any(|part| path.contains(part))
    });
    let growing = sources.filter(|path| {
        // Parameters of functions have a deeper indent, or are on the line of their function.
        let text = tree::read(path);
        let program = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        program.lines().any(|line| !line.starts_with("        ") && is_growing_field(line))
    });
    let named = rows("Maps in memory");
    assert_eq!(growing.collect::<BTreeSet<_>>(), named);
    let text = tree::read("docs/reference/bounds.md");
    let mut bounds = 0;
    for row in text.lines().filter(|line| line.starts_with("| `") && line.contains("/src/")) {
        let words: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let (files, constants): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| word.contains('/'));
        bounds += constants.len();
        for constant in constants {
            let is_there = files.iter().any(|file| tree::read(file).contains(&format!("const {constant}: ")));
            assert!(is_there, "{files:?} name no {constant}");
        }
    }
    assert!(bounds >= 15, "{bounds}");
}

#[test]
fn every_test_of_a_bound_exists() {
    let sources: Vec<String> = tree::files(".rs").iter().map(|path| tree::read(path)).collect();
    let text = tree::read("docs/reference/bounds.md");
    let named: BTreeSet<&str> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| word.matches('_').count() >= 4 && word.contains(char::is_lowercase))
        .collect();
    assert!(named.len() >= 12, "{named:?}");
    for test in named {
        assert!(sources.iter().any(|source| source.contains(&format!("fn {test}()"))), "there is no test {test}");
    }
}
