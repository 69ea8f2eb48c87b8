//! Wrong wall clocks of processes. A file says by how many seconds a clock is off, and may change while the process runs.
//! Deadlines are not affected.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Sets the clocks that read this file to this many seconds off.
pub(crate) fn set(file: &Path, off_by: i64) {
    // Atomically: a half-written file would be another time.
    let new = file.with_extension("new");
    std::fs::write(&new, format!("{off_by:+}s\n")).unwrap();
    std::fs::rename(new, file).unwrap();
}

/// The variables of a program with such a clock. The program `faketime` would stay as a parent, and killing it would leave
/// the other behind.
pub(crate) fn of_program(file: &Path, off_by: i64) -> [(&'static str, String); 4] {
    set(file, off_by);
    [
        ("LD_PRELOAD", libfaketime().display().to_string()),
        ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
        ("FAKETIME_CACHE_DURATION", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ]
}

/// The same of redis-server, which libfaketime cannot change: the library of `clock.c` is built beside the file.
pub(crate) fn of_redis(file: &Path, off_by: i64) -> [(&'static str, String); 2] {
    set(file, off_by);
    let (source, library) = (file.with_file_name("clock.c"), file.with_file_name("clock.so"));
    std::fs::write(&source, include_str!("clock.c")).unwrap();
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).status();
    assert!(compiled.expect("a C compiler is needed: install gcc (./check does)").success());
    [("LD_PRELOAD", library.display().to_string()), ("CLOCK_FILE", file.display().to_string())]
}

/// The library that shifts a program's clock, in the folder of this machine's architecture.
pub(crate) fn libfaketime() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap();
    let libraries = folders.map(|folder| folder.unwrap().path().join("faketime/libfaketimeMT.so.1"));
    let found = libraries.into_iter().find(|library| library.exists());
    found.expect("faketime is needed for wrong clocks: install the package faketime (./check does)")
}
