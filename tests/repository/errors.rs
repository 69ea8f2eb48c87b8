//! Every error code has a heading with its status in `docs/reference/errors.md`, and every heading has a code.

use std::collections::{BTreeMap, BTreeSet};

use contract::rejection::Rejection;

use crate::tree;

/// Every code with its status. A code of two processes has one meaning and one status.
fn catalogues() -> BTreeSet<(String, u16)> {
    let edge = Rejection::ALL.iter().map(|rejection| (rejection.code(), rejection.status()));
    let services = orders_service::catalogue().chain(domains_service::catalogue());
    edge.chain(services).map(|(code, status)| (code.to_owned(), status)).collect()
}

/// Every heading ``### `code` `` with the number its next line of text begins with.
fn headings() -> Vec<(String, String)> {
    let text = tree::read("docs/reference/errors.md");
    let mut lines = text.lines();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let Some(code) = line.strip_prefix("### `").and_then(|rest| rest.strip_suffix('`')) else { continue };
        let below = lines.find(|line| !line.is_empty()).unwrap_or_default();
        found.push((code.to_owned(), below.split(' ').next().unwrap_or_default().to_owned()));
    }
    found
}

#[test]
fn a_code_has_one_status() {
    let mut statuses: BTreeMap<String, Vec<u16>> = BTreeMap::new();
    for (code, status) in catalogues() {
        statuses.entry(code).or_default().push(status);
    }
    statuses.retain(|_, statuses| statuses.len() > 1);
    assert!(statuses.is_empty(), "these codes have several: {statuses:?}");
}

// rule: 7.2
#[test]
fn every_code_has_its_heading_and_every_heading_its_code() {
    let expected: BTreeSet<(String, String)> =
        catalogues().into_iter().map(|(code, status)| (code, status.to_string())).collect();
    let headings = headings();
    let found: BTreeSet<(String, String)> = headings.iter().cloned().collect();
    assert_eq!(found.len(), headings.len(), "a heading appears twice");
    let missing: Vec<_> = expected.difference(&found).collect();
    let unknown: Vec<_> = found.difference(&expected).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "docs/reference/errors.md lacks {missing:?} and has {unknown:?}, which no catalogue knows"
    );
}
