//! `docs/reference/bounds.md` names every file of a running platform.

use std::collections::BTreeSet;

use crate::world::Platform;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_file_of_the_data_directory_has_its_bound() {
    let platform = Platform::start();
    platform.json(&["project", "create", "bounds", "--plan", "pro"]);
    platform.json(&["key", "create", "bounds"]);
    let text = include_str!("../../docs/reference/bounds.md");
    let section = text.split("\n## ").find(|section| section.starts_with("Files of the data directory")).unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let named: BTreeSet<String> = cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(|name| name.trim_end_matches('/').to_owned())
        .collect();
    let mut unnamed = Vec::new();
    let mut seen = 0;
    for entry in std::fs::read_dir(platform.path("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        seen += 1;
        if !named.contains(&name) {
            unnamed.push(name);
        }
    }
    assert!(unnamed.is_empty(), "docs/reference/bounds.md does not name {unnamed:?}");
    assert!(seen >= 6, "the directory was read");
}
