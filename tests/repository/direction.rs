//! Crates depend on the crates that `KNOWS` lists, and on no other of ours. No crate depends on `fuzz`, which tests the
//! parsers of untrusted input. `dev-world` is for trying out custom domains: the product includes it only with a feature.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::MetadataCommand;

use crate::tree::root;

/// The allowed dependencies.
const KNOWS: &[(&str, &[&str])] = &[
    ("contract", &[]),
    ("chassis", &["contract"]),
    ("verification", &["contract", "chassis"]),
    ("quota", &["contract", "chassis"]),
    ("listener", &["contract", "chassis"]),
    ("replica", &["contract", "chassis"]),
    ("upstreams", &["contract", "chassis", "listener"]),
    ("gateway", &["contract", "chassis", "quota", "listener", "replica", "upstreams"]),
    ("orders-service", &["contract", "chassis"]),
    ("domains-api", &["contract", "chassis", "verification"]),
    ("dashboard", &["contract", "chassis", "verification", "domains-api"]),
    ("domains-service", &["contract", "chassis", "verification", "domains-api", "dashboard"]),
    ("dev-world", &["contract", "chassis"]),
    ("fuzz", &["contract", "chassis", "verification", "quota", "listener", "upstreams", "gateway"]),
    ("tollhouse", &["contract", "chassis", "gateway", "orders-service", "domains-service", "dev-world"]),
];

#[test]
fn crates_depend_only_on_crates_below_them() {
    let metadata = MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec().unwrap();
    let ours: BTreeSet<String> = metadata.packages.iter().map(|package| package.name.to_string()).collect();
    // Dependencies of tests and build scripts count as well.
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

#[test]
fn the_test_world_and_its_dependencies_are_not_in_the_product() {
    let metadata = MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec().unwrap();
    let knows = |needle: &str| -> Vec<(String, bool)> {
        let of = |package: &cargo_metadata::Package| {
            let found = package.dependencies.iter().filter(|dependency| dependency.name == needle);
            found.map(|dependency| (package.name.to_string(), dependency.optional)).collect::<Vec<_>>()
        };
        metadata.packages.iter().flat_map(of).collect()
    };
    assert_eq!(knows("dev-world"), [("tollhouse".to_owned(), true)], "an optional part of one program");
    assert_eq!(knows("hickory-server"), [("dev-world".to_owned(), false)]);
    let tollhouse = metadata.packages.iter().find(|package| package.name.as_str() == "tollhouse").unwrap();
    assert_eq!(tollhouse.features["default"], ["jemalloc"], "{:?}", tollhouse.features);
}
