//! Power failures: what stays on disk when everything unsynced is lost.
//!
//! `kill -9` does not test this, because the system keeps what was written. Here a second process of the test works on
//! a disk that keeps only synced data (`power.c`, loaded before libc), and ends abruptly.
#![allow(dead_code, reason = "every test binary that includes this file uses another part of it")]

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The directory of the second process; only it has this variable.
const WORK: &str = "POWER_WORK";

/// The exit status of the second process when its work is done, or stopped early. The test runner uses 0 or 101.
pub(crate) const DONE: i32 = 77;

/// Runs `work` in an empty directory; returns that directory as it is after a power failure. `test` is the path of the
/// calling test, which runs a second time in the other process.
pub(crate) fn fails_after(test: &str, work: impl FnOnce(&Path)) -> TempDir {
    if let Some(directory) = place_of_work() {
        work(&directory);
        // No destructor runs and no connection is closed.
        std::process::exit(DONE);
    }
    let (disk, worked) = (Disk::new(), tempfile::tempdir().unwrap());
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(WORK, worked.path())
        .envs(disk.environment())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(DONE), "is {test} the path of this test? {said}");
    disk.comes_back(worked.path())
}

/// A disk that keeps only synced data.
pub(crate) struct Disk {
    place: TempDir,
}

impl Disk {
    /// An empty disk.
    pub(crate) fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("kept")).unwrap();
        let (source, library) =
            (concat!(env!("CARGO_MANIFEST_DIR"), "/../chassis/tests/support/power.c"), place.path().join("power.so"));
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(library).arg(source).status();
        assert!(compiled.expect("a C compiler is needed: install gcc (./check does)").success());
        Self { place }
    }

    /// The environment of a process that writes to it.
    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.place.path().join("power.so")), ("POWER_KEPT", self.kept())]
    }

    /// Keeps a directory of files in its current state.
    pub(crate) fn keep(&self, directory: &Path) {
        let inode = |path: &Path| std::fs::metadata(path).unwrap().ino();
        let mut names = String::new();
        for file in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            names.push_str(&format!("{} f {}\n", inode(&file), file.file_name().unwrap().to_str().unwrap()));
            std::fs::copy(&file, self.kept().join(format!("file-{}", inode(&file)))).unwrap();
        }
        std::fs::write(self.kept().join(format!("folder-{}", inode(directory))), names).unwrap();
    }

    /// A directory as it is after a power failure.
    pub(crate) fn comes_back(&self, directory: &Path) -> TempDir {
        let left = tempfile::tempdir().unwrap();
        come_back(&self.kept(), std::fs::metadata(directory).unwrap().ino(), left.path());
        left
    }

    fn kept(&self) -> PathBuf {
        self.place.path().join("kept")
    }
}

#[expect(clippy::disallowed_methods, reason = "which of two processes of one test this is, not a setting")]
fn place_of_work() -> Option<PathBuf> {
    std::env::var_os(WORK).map(PathBuf::from)
}

/// Restores the names that the folder had when it was last synced. A file that was never synced is empty.
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
