//! Which database the tests of this program run over: SQLite, or PostgreSQL when they are run once more.

#[path = "../../../chassis/tests/support/postgres.rs"]
pub(crate) mod postgres;

use std::path::Path;
use std::process::Command;

use chassis::secret::Secret;
use chassis::sql::{Place, PostgresSettings};
use postgres::{Server, name_in};

/// Set when the tests run over PostgreSQL.
const OVER_POSTGRES: &str = "TOLLHOUSE_TESTS_OVER_POSTGRES";

/// Where a test over PostgreSQL notes which database is its own.
const NOTE: &str = "database.url";

/// Connections of one service: the tests of a process share one server.
const CONNECTIONS: u32 = 5;

/// Whether the tests run over PostgreSQL.
#[expect(clippy::disallowed_methods, reason = "tests are told by whoever starts them, not by a file of settings")]
pub(crate) fn over_postgres() -> bool {
    std::env::var_os(OVER_POSTGRES).is_some()
}

/// The database of a test that has this directory: the same one each time it is asked for.
pub(crate) fn place(directory: &Path) -> Place {
    let note = directory.join(NOTE);
    if over_postgres() && !note.exists() {
        std::fs::write(&note, Server::shared().database()).unwrap();
    }
    if !note.exists() {
        return directory.join("domains.sqlite").into();
    }
    let url = Secret::parse_password(&url_in(directory)).unwrap();
    PostgresSettings::new(url, CONNECTIONS).unwrap().into()
}

/// A directory for a test over a database of a server.
pub(crate) fn in_postgres(url: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(NOTE), url).unwrap();
    directory
}

/// Everything that a test's database holds at this moment.
pub(crate) fn at_rest(directory: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        bytes.extend(std::fs::read(entry.unwrap().path()).unwrap());
    }
    if directory.join(NOTE).exists() {
        bytes.extend(Server::shared().dump(name_in(&url_in(directory))).into_bytes());
    }
    bytes
}

/// What a crash at this moment would leave.
pub(crate) fn copied(directory: &Path) -> tempfile::TempDir {
    if directory.join(NOTE).exists() {
        return in_postgres(&Server::shared().copy(name_in(&url_in(directory))));
    }
    let copy = tempfile::tempdir().unwrap();
    for name in ["domains.sqlite", "domains.sqlite-wal"] {
        std::fs::copy(directory.join(name), copy.path().join(name)).unwrap();
    }
    copy
}

/// The URL of a test's database.
pub(crate) fn url_in(directory: &Path) -> String {
    std::fs::read_to_string(directory.join(NOTE)).unwrap()
}

/// The same suite over the other store: this program runs itself once more.
#[test]
fn every_other_test_passes_over_postgresql_too() {
    if over_postgres() {
        return;
    }
    // This one, those that have a server of their own, and those to which the store is nothing.
    let skipped = [
        "every_other_test_passes_over_postgresql_too",
        "postgres::",
        "openapi::",
        "http::",
        "verification::",
        "acme::pebble::",
        "domains_added_all_at_once",
    ];
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.env(OVER_POSTGRES, "1").args(skipped.iter().flat_map(|name| ["--skip", name]));
    let output = again.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let passed = text.lines().filter(|line| line.starts_with("test ") && line.ends_with("... ok")).count();
    assert!(passed > 50, "{passed} tests ran: {text}");
}
