//! The catalogues of codes, and what the documentation says about them: `docs/reference/errors.md` has a heading with
//! status and party for each, `docs/reference/codes.md` is the table of refusals with their causes, and
//! `docs/reference/domain-problems.md` the table of problems.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use contract::rejection::{CodeEntry, Rejection};
use domains_service::ProblemCode;

use crate::tree;

/// Every code of every process.
fn catalogues() -> impl Iterator<Item = CodeEntry> {
    Rejection::entries().chain(orders_service::catalogue()).chain(domains_service::catalogue())
}

/// A code's meaning to a client: a code of two processes has one meaning, one status and one party.
fn meanings() -> BTreeSet<(String, String, String)> {
    catalogues().map(|entry| (entry.code.to_owned(), entry.status.to_string(), entry.blame.to_string())).collect()
}

/// Every heading ``### `code` `` with the status and the party that its next line of text begins with.
fn headings() -> Vec<(String, String, String)> {
    let text = tree::read("docs/reference/errors.md");
    let mut lines = text.lines();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let Some(code) = line.strip_prefix("### `").and_then(|rest| rest.strip_suffix('`')) else { continue };
        let below = lines.find(|line| !line.is_empty()).unwrap_or_default();
        let (status, rest) = below.split_once(" · ").unwrap_or_default();
        let party = rest.split('.').next().unwrap_or_default();
        found.push((code.to_owned(), status.to_owned(), party.to_owned()));
    }
    found
}

#[test]
fn a_code_has_one_status_and_one_party() {
    let mut meant: BTreeMap<String, u32> = BTreeMap::new();
    for (code, ..) in meanings() {
        *meant.entry(code).or_default() += 1;
    }
    meant.retain(|_, meanings| *meanings > 1);
    assert!(meant.is_empty(), "these codes have several: {meant:?}");
}

// rule: 7.2
#[test]
fn every_code_has_its_heading_and_every_heading_its_code() {
    let (expected, headings) = (meanings(), headings());
    let found: BTreeSet<_> = headings.iter().cloned().collect();
    assert_eq!(found.len(), headings.len(), "a heading appears twice");
    let missing: Vec<_> = expected.difference(&found).collect();
    let unknown: Vec<_> = found.difference(&expected).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "docs/reference/errors.md lacks {missing:?} and has {unknown:?}, which no catalogue knows"
    );
}

/// The page of all refusals.
fn refusals() -> String {
    let mut causes: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for entry in catalogues() {
        causes.entry((entry.code, entry.status, entry.blame)).or_default().insert(entry.cause);
    }
    let mut text = "# Codes of refusals\n\nGenerated from the catalogues in the sources. [Errors](errors.md) says what to do about each.\n\n\
                    | Code | Status | Who must act | Cause |\n|---|---|---|---|\n"
        .to_owned();
    for ((code, status, blame), causes) in causes {
        let causes = causes.into_iter().collect::<Vec<_>>().join(" ");
        text += &format!("| [`{code}`](errors.md#{code}) | {status} | {blame} | {causes} |\n");
    }
    text
}

/// The page of the problems of domains.
fn problems() -> String {
    let mut text = "# Problems of a domain\n\nGenerated from the catalogue in the sources. Each problem carries its own fix.\n\n\
                    In `problems` of a domain. `you` is the owner of the domain, `us` the operator of the platform, `ca` the certificate authority. An `error`\n\
                    blocks the domain, a `warning` does not. A single problem can differ: its own `who` and `severity` count.\n\n\
                    | Code | Severity | Who must act | Cause |\n|---|---|---|---|\n"
        .to_owned();
    for code in ProblemCode::ALL {
        text += &format!("| `{code}` | {} | {} | {} |\n", code.severity(), code.who(), code.cause());
    }
    text
}

#[test]
fn the_tables_of_refusals_and_problems_are_those_of_the_catalogues() {
    for (page, table) in [("docs/reference/codes.md", refusals()), ("docs/reference/domain-problems.md", problems())] {
        if tree::read(page) != table {
            let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join(page.replace('/', "-"));
            std::fs::write(&made, table).unwrap();
            panic!("{page} differs from the catalogue: cp {} {page}", made.display());
        }
    }
}
