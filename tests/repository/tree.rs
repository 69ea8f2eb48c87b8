//! The files of the project.

use std::path::{Path, PathBuf};

/// Directories without files of the project, at any depth.
const NOT_OURS: &[&str] = &[".git", "target", "data", "node_modules"];

/// The root of the project.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A file's text, by its path from the root.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file whose name ends in `ending`, by its path from the root, sorted.
pub(crate) fn files(ending: &str) -> Vec<String> {
    let root = root();
    let mut found = Vec::new();
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if entry.file_type().unwrap().is_dir() {
                if !NOT_OURS.contains(&name.as_str()) {
                    directories.push(entry.path());
                }
            } else if name.ends_with(ending) {
                found.push(entry.path().strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}
