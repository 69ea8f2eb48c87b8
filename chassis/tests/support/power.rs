//! Power that fails: what a process leaves on the disk when everything is lost that it did not sync.
//!
//! `kill -9` proves nothing of this: the system keeps what was written. Here the work is done by a second process of the
//! test, on a disk that keeps what was synced and nothing else (`power.c`, loaded before libc), and ends without notice.
#![allow(dead_code, reason = "every test binary that includes this file uses another part of it")]

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Where the second process works; only it has this variable.
const WORK: &str = "POWER_WORK";

/// How the second process ends when its work is done, or earlier with something left undone. The test runner says 0 or 101.
pub(crate) const DONE: i32 = 77;

/// Does the work in an empty directory that a power failure then leaves as it comes back: in the directory that is
/// returned. `test` is the path of the calling test, which runs a second time for it.
pub(crate) fn fails_after(test: &str, work: impl FnOnce(&Path)) -> TempDir {
    if let Some(directory) = place_of_work() {
        work(&directory);
        // No destructor runs and no connection is closed.
        std::process::exit(DONE);
    }
    let place = tempfile::tempdir().unwrap();
    let [worked, kept, library] = ["work", "kept", "power.so"].map(|name| place.path().join(name));
    std::fs::create_dir(&worked).unwrap();
    std::fs::create_dir(&kept).unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../chassis/tests/support/power.c");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
    assert!(compiled.expect("a C compiler is needed: install gcc (./check does)").success());
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(WORK, &worked)
        .env("POWER_KEPT", &kept)
        .env("LD_PRELOAD", &library)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(DONE), "is {test} the path of this test? {said}");
    let left = tempfile::tempdir().unwrap();
    come_back(&kept, std::fs::metadata(&worked).unwrap().ino(), left.path());
    left
}

#[expect(clippy::disallowed_methods, reason = "which of two processes of one test this is, not a setting")]
fn place_of_work() -> Option<PathBuf> {
    std::env::var_os(WORK).map(PathBuf::from)
}

/// Makes the names that the folder had when it was synced last. A file that was never synced is empty.
fn come_back(kept: &Path, folder: u64, to: &Path) {
    let names = std::fs::read_to_string(kept.join(format!("folder-{folder}"))).unwrap_or_default();
    for line in names.lines() {
        let mut parts = line.splitn(3, ' ');
        let (inode, kind, name) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let place = to.join(name);
        if kind == "d" {
            std::fs::create_dir(&place).unwrap();
            come_back(kept, inode.parse().unwrap(), &place);
        } else {
            let bytes = std::fs::read(kept.join(format!("file-{inode}"))).unwrap_or_default();
            std::fs::write(&place, bytes).unwrap();
        }
    }
}
