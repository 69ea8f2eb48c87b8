//! Rules for files that no lint checks.

use crate::tree;

/// Most lines of a file; a longer one should be split.
const LINES_MAX: usize = 400;

/// Files that may be longer, with the reason.
const LONGER: &[(&str, &str)] = &[
    ("domains-service/tests/it/world.rs", "one world: control plane, gateway's identity, callers"),
    ("quota/src/ledger/bucket/tests.rs", "the rules of one record"),
    ("quota/src/ledger/node/tests.rs", "the rules of one node"),
    ("gateway/tests/it/exchange.rs", "a table of requests with their responses and log lines"),
    ("gateway/tests/it/upstream_http2.rs", "a table of upstreams over HTTP/2"),
];

/// Forbidden texts. Each is written in two halves, so that this file does not contain it.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    ("to", "do!(", "finish it, or leave it out"),
    ("unimpl", "emented!(", "finish it, or leave it out"),
    ("db", "g!(", "left over from debugging"),
    ("#[ig", "nore", "a test whose tool is missing fails and says what to install"),
    ("thread::sl", "eep(", "wait for a condition with a deadline, or move the clock"),
    ("/ho", "me/", "a path of one machine"),
    ("/Us", "ers/", "a path of one machine"),
    ("/ro", "ot/", "a path of one machine"),
];

#[test]
fn no_file_is_too_long() {
    let mut long = Vec::new();
    for path in tree::files(".rs") {
        let lines = tree::read(&path).lines().count();
        let allowed = LONGER.iter().any(|(longer, _)| *longer == path);
        if lines > LINES_MAX && !allowed {
            long.push(format!("{path} has {lines} lines"));
        }
        assert!(lines > LINES_MAX || !allowed, "{path} is short by now: take it off the list of longer files");
    }
    assert!(long.is_empty(), "more than {LINES_MAX} lines; look for the second noun in them:\n{}", long.join("\n"));
}

#[test]
fn a_module_is_a_file_beside_its_folder() {
    let old: Vec<_> = tree::files("/mod.rs").into_iter().chain(tree::files("mod.rs")).collect();
    let old: Vec<_> = old.iter().filter(|path| path.ends_with("/mod.rs")).collect();
    assert!(old.is_empty(), "{old:?}");
}

#[test]
fn files_contain_no_unfinished_or_local_text() {
    let mut found = Vec::new();
    for ending in [".rs", ".toml", ".md", ".sql", ".yml"] {
        for path in tree::files(ending) {
            let text = tree::read(&path);
            for (first, second, reason) in FORBIDDEN {
                let forbidden = format!("{first}{second}");
                for (index, _) in text.lines().enumerate().filter(|(_, line)| line.contains(&forbidden)) {
                    found.push(format!("{path}:{}: {forbidden} ({reason})", index + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The targets of all relative links of a page, as paths from the root, without anchors.
fn links(page: &str) -> Vec<String> {
    let text = tree::read(page);
    let folder = page.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let relative = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    relative.map(|target| format!("{folder}{}", target.split('#').next().unwrap_or_default())).collect()
}

#[test]
fn links_between_pages_resolve_and_every_decision_is_listed() {
    let pages = tree::files(".md");
    let all: Vec<String> = pages.iter().flat_map(|page| links(page)).collect();
    assert!(all.len() > 10, "the search for links finds {all:?}");
    let broken: Vec<_> = all.iter().filter(|link| !tree::root().join(link).exists()).collect();
    assert!(broken.is_empty(), "broken links: {broken:?}");
    let listed = links("docs/develop/decisions/README.md");
    let decisions =
        pages.iter().filter(|page| page.starts_with("docs/develop/decisions/") && !page.ends_with("README.md"));
    let forgotten: Vec<_> = decisions.filter(|page| !listed.contains(page)).collect();
    assert!(forgotten.is_empty(), "docs/develop/decisions/README.md does not list {forgotten:?}");
}
