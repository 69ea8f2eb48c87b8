//! The catalogues of codes, and what the documentation says about them: `docs/reference/errors.md` has a heading with
//! status and party for each, `docs/reference/codes.md` is the table of all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use contract::rejection::{CodeEntry, Rejection};
use domains_service::ProblemCode;

use crate::tree;

/// The page with all codes.
const TABLE: &str = "docs/reference/codes.md";

/// Every code of a process, with the heading of its table.
fn catalogues() -> [(&'static str, Vec<CodeEntry>); 3] {
    [
        ("The gateway", Rejection::entries().collect()),
        ("Orders", orders_service::catalogue().collect()),
        ("Projects, keys and domains", domains_service::catalogue().collect()),
    ]
}

/// What a code means to a client: a code of two processes has one meaning, one status and one party.
fn meanings() -> BTreeSet<(String, String, String)> {
    let all = catalogues().into_iter().flat_map(|(_, entries)| entries);
    all.map(|entry| (entry.code.to_owned(), entry.status.to_string(), entry.blame.to_string())).collect()
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

/// The page, as the catalogues have it.
fn table() -> String {
    let mut text = "# Codes\n\nEvery code that a response or a domain can have, with who must act and the cause. Generated from the catalogues in the sources;\n\
                    [errors.md](errors.md) says what to do about each refusal, and a problem of a domain carries its own fix.\n"
        .to_owned();
    for (heading, mut entries) in catalogues() {
        entries.sort_by_key(|entry| (entry.status, entry.code));
        text += &format!("\n## {heading}\n\n| Code | Status | Who must act | Cause |\n|---|---|---|---|\n");
        for CodeEntry { code, status, blame, cause } in entries {
            text += &format!("| [`{code}`](errors.md#{code}) | {status} | {blame} | {cause} |\n");
        }
    }
    text += "\n## Problems of a domain\n\nIn `problems` of a domain. `you` is the owner of the domain, `us` the operator of the platform, `ca` the certificate authority. An `error`\n\
             blocks the domain, a `warning` does not. A single problem can differ: its own `who` and `severity` count.\n\n\
             | Code | Severity | Who must act | Cause |\n|---|---|---|---|\n";
    for code in ProblemCode::ALL {
        text += &format!("| `{code}` | {} | {} | {} |\n", code.severity(), code.who(), code.cause());
    }
    text
}

#[test]
fn the_table_of_codes_is_that_of_the_catalogues() {
    let table = table();
    if tree::read(TABLE) != table {
        let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("codes.md");
        std::fs::write(&made, table).unwrap();
        panic!("{TABLE} is not what the catalogues say: cp {} {TABLE}", made.display());
    }
}
