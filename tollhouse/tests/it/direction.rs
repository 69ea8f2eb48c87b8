//! `contract` ← `chassis` ← {`gateway`, `orders-service`, `domains-service`} ← `tollhouse`, and nothing else. `fuzz` throws
//! bytes at the parts that read what strangers send; nobody knows it.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::MetadataCommand;

use crate::tree::root;

/// Who may know whom.
const KNOWS: &[(&str, &[&str])] = &[
    ("contract", &[]),
    ("chassis", &["contract"]),
    ("gateway", &["contract", "chassis"]),
    ("orders-service", &["contract", "chassis"]),
    ("domains-service", &["contract", "chassis"]),
    ("fuzz", &["contract", "chassis", "gateway", "domains-service"]),
    ("tollhouse", &["contract", "chassis", "gateway", "orders-service", "domains-service"]),
];

#[test]
fn crates_know_only_what_is_below_them() {
    let metadata = MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec().unwrap();
    let ours: BTreeSet<String> = metadata.packages.iter().map(|package| package.name.to_string()).collect();
    // Tests and build scripts count as well: a service that is tested with its neighbour knows it.
    let known: BTreeMap<String, BTreeSet<String>> = metadata
        .packages
        .iter()
        .map(|package| {
            let known = package.dependencies.iter().map(|dependency| dependency.name.clone());
            (package.name.to_string(), known.filter(|name| ours.contains(name)).collect())
        })
        .collect();
    let expected: BTreeMap<String, BTreeSet<String>> = KNOWS
        .iter()
        .map(|(name, known)| ((*name).to_owned(), known.iter().map(|name| (*name).to_owned()).collect()))
        .collect();
    assert_eq!(known, expected);
}
