//! `./check` on a machine without the project's tools: it can install every program that the tests
//! start, and it ends with a verdict after any failure.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use crate::tree;

/// One row of `tools/packages`.
struct Row {
    command: String,
    groups: Vec<String>,
    /// The packages of apt-get, then those of dnf; `-` where there is none.
    packages: [String; 2],
}

const MANAGERS: [&str; 2] = ["apt-get", "dnf"];

/// Programs of every Debian, and further programs of installed packages.
const ALWAYS_THERE: &[&str] =
    &["bash", "chown", "cp", "kill", "mkfifo", "mount", "setpriv", "sh", "taskset", "timeout", "umount"];
const INSTALLED_BESIDE: &[(&str, &str)] =
    &[("pebble-challtestsrv", "pebble"), ("postgres", "initdb"), ("prometheus", "promtool"), ("psql", "initdb")];

fn table() -> Vec<Row> {
    let text = tree::read("tools/packages");
    let rows = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let rows = rows.map(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let &[command, groups, apt, dnf] = &columns[..] else { panic!("not four columns: {line}") };
        let groups = groups.split(',').map(str::to_owned).collect();
        Row { command: command.to_owned(), groups, packages: [apt.to_owned(), dnf.to_owned()] }
    });
    rows.collect()
}

/// Writes an executable script.
fn script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "where tools are, not settings of a process")]
fn search_path() -> String {
    std::env::var("PATH").unwrap()
}

/// A folder with links to a few programs of the system.
fn small_system(programs: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for program in programs {
        let found = search_path();
        let found = std::env::split_paths(&found).map(|folder| folder.join(program)).find(|path| path.exists());
        let found = found.unwrap_or_else(|| panic!("{program} is not on the PATH"));
        std::os::unix::fs::symlink(found, folder.path().join(program)).unwrap();
    }
    folder
}

#[test]
fn every_row_of_the_table_is_installed_by_its_package_manager() {
    for (column, manager) in MANAGERS.iter().enumerate() {
        let system = small_system(&["awk", "bash", "cat", "env", "id", "mktemp", "rm"]);
        let asked = system.path().join("asked");
        let stub = format!("echo \"$@\" >>{}", asked.display());
        script(&system.path().join(manager), &stub);
        script(&system.path().join("sudo"), "exec \"$@\"");
        for row in table() {
            std::fs::write(&asked, "").unwrap();
            let output = Command::new(system.path().join("bash"))
                .args([
                    "-euo",
                    "pipefail",
                    "-c",
                    "source tools/build-tools.sh; install_packages \"$1\"",
                    "-",
                    &row.command,
                ])
                .current_dir(tree::root())
                .env("PATH", system.path())
                .output()
                .unwrap();
            assert!(output.status.success(), "{manager} {}: {}", row.command, String::from_utf8_lossy(&output.stderr));
            let asked = std::fs::read_to_string(&asked).unwrap();
            let packages = row.packages[column].replace(',', " ");
            let installs = asked.lines().find(|line| line.starts_with("install"));
            if packages == "-" {
                assert_eq!(installs, None, "{manager} {}", row.command);
            } else {
                assert!(installs.is_some_and(|line| line.ends_with(&format!(" {packages}"))), "{manager}: {asked}");
            }
        }
    }
}

#[test]
fn a_missing_program_without_a_package_is_named() {
    let system = small_system(&["awk", "bash", "cat", "env", "id", "mktemp", "rm"]);
    script(&system.path().join("dnf"), "exit 0");
    script(&system.path().join("sudo"), "exec \"$@\"");
    let output = Command::new(system.path().join("bash"))
        .args(["-euo", "pipefail", "-c", "source tools/build-tools.sh; PATH=${PATH%%:*}; need dev-world"])
        .current_dir(tree::root())
        .env("PATH", system.path())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("Still missing: pebble."), "{text}");
}

#[test]
fn every_program_that_tests_start_is_in_the_table_for_their_crate() {
    let table = table();
    let mut started = 0;
    for path in tree::files(".rs") {
        // The tests of the whole are targets of tollhouse.
        let crate_name = path.split('/').next().map(|name| if name == "tests" { "tollhouse" } else { name }).unwrap();
        let is_of_tests = path.contains("tests/") || path.contains("/tests.rs") || crate_name == "dev-world";
        // Comparisons with other servers belong to the benches, which install those servers.
        if !is_of_tests || path.contains("/scale/peers.rs") {
            continue;
        }
        let text = tree::read(&path);
        for opening in ["Command::new(\"", "program(\"", "command: \""] {
            for program in text.split(opening).skip(1).filter_map(|rest| rest.split('"').next()) {
                if ALWAYS_THERE.contains(&program) {
                    continue;
                }
                let command =
                    INSTALLED_BESIDE.iter().find(|(beside, _)| *beside == program).map_or(program, |(_, row)| *row);
                let row = table.iter().find(|row| row.command == command);
                let row = row.unwrap_or_else(|| panic!("{path} starts {program}: tools/packages has no row for it"));
                let groups = row.groups.iter().map(String::as_str);
                let is_installed = groups.into_iter().any(|group| ["build", "check", crate_name].contains(&group));
                assert!(is_installed, "{path} starts {program}: its row in tools/packages lacks {crate_name}");
                started += 1;
            }
        }
    }
    assert!(started >= 15, "the search finds only {started} programs");
}

#[test]
fn the_groups_of_the_table_are_those_of_check() {
    let check = tree::read("check");
    let crates = check.lines().find_map(|line| line.strip_prefix("crates=(")?.strip_suffix(')')).unwrap();
    let mut known: BTreeSet<_> = crates.split(' ').collect();
    for name in &known {
        assert!(tree::root().join(name).join("Cargo.toml").exists(), "{name} is not a crate");
    }
    known.extend(["build", "check", "full"]);
    let table = table();
    let used: BTreeSet<_> = table.iter().flat_map(|row| row.groups.iter().map(String::as_str)).collect();
    assert_eq!(used, known);
}

/// Runs steps of `./check` with a cargo that behaves as a script says.
fn steps(cargo: &str, names: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    script(&folder.path().join("cargo"), cargo);
    let path = format!("{}:{}", folder.path().display(), search_path());
    let mut command = Command::new("bash");
    command.arg("check").arg("step").args(names).current_dir(tree::root()).env("PATH", path);
    command.env("XDG_CACHE_HOME", folder.path()).output().unwrap()
}

#[test]
fn a_failed_step_is_named_and_the_other_steps_run() {
    let unreachable = "case \"$*\" in *fetch*) echo 'no network' >&2; exit 1;; esac";
    let vulnerable = "case \"$*\" in *advisories*) echo 'RUSTSEC-0000-0000' >&2; exit 4;; esac";
    for (cargo, says, never_says) in [(unreachable, "fetch", "update them"), (vulnerable, "update them", "fetch")] {
        let output = steps(cargo, &["advisories", "documentation", "format"]);
        let (text, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(errors.contains(says) && !errors.contains(never_says), "{errors}");
        for line in ["--- advisories: FAILED", "--- documentation: ok", "--- format: ok", "FAILED: advisories\n"] {
            assert!(text.contains(line), "{line:?} is missing:\n{text}\n{errors}");
        }
        assert!(text.ends_with("FAILED: advisories\n0 passed, 0 failed\n"), "{text}");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn a_step_that_exits_does_not_end_the_other_steps() {
    // `components` exits when rustfmt is missing.
    let output = steps("case \"$*\" in 'fmt --version') exit 1;; esac", &["components", "documentation"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("--- components: FAILED") && text.contains("--- documentation: ok"), "{text}");
    assert!(text.ends_with("FAILED: components\n0 passed, 0 failed\n"), "{text}");
}

#[test]
fn an_unknown_step_is_an_error() {
    let output = steps("exit 0", &["lint"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("FAILED: lint (unknown step)"), "{text}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_help_of_up_matches_the_program_and_needs_no_build() {
    let program = Command::new(env!("CARGO_BIN_EXE_tollhouse")).args(["up", "--help"]).output().unwrap();
    let program = String::from_utf8(program.stdout).unwrap();
    assert_eq!(
        tree::read("docs/reference/up-help.txt"),
        program,
        "run: target/debug/tollhouse up --help >docs/reference/up-help.txt"
    );
    // Without cargo on the PATH nothing can be built.
    let system = small_system(&["bash", "cat", "dirname"]);
    let mut script = Command::new(system.path().join("bash"));
    script.args(["up", "--http-port", "0", "--help"]);
    let printed = script.current_dir(tree::root()).env("PATH", system.path()).output().unwrap();
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), program);
}
