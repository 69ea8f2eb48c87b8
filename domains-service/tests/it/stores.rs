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

/// A connection to a test's database, beside those of the service.
enum Beside {
    Sqlite(sqlx::SqliteConnection),
    Postgres(sqlx::PgConnection),
}

impl Beside {
    async fn open(directory: &Path) -> Self {
        use sqlx::Connection as _;
        if directory.join(NOTE).exists() {
            return Self::Postgres(sqlx::PgConnection::connect(&url_in(directory)).await.unwrap());
        }
        let file = sqlx::sqlite::SqliteConnectOptions::new().filename(directory.join("domains.sqlite"));
        Self::Sqlite(sqlx::SqliteConnection::connect_with(&file).await.unwrap())
    }

    /// Two columns of text of all rows.
    async fn pairs(self, text: &str) -> Vec<(Option<String>, Option<String>)> {
        let text = sqlx::AssertSqlSafe(text.to_owned());
        match self {
            Self::Sqlite(mut connection) => sqlx::query_as(text).fetch_all(&mut connection).await.unwrap(),
            Self::Postgres(mut connection) => sqlx::query_as(text).fetch_all(&mut connection).await.unwrap(),
        }
    }
}

/// Carries out statements behind the service's back.
pub(crate) async fn execute(directory: &Path, text: &str) {
    let text = sqlx::AssertSqlSafe(text.to_owned());
    match Beside::open(directory).await {
        Beside::Sqlite(mut connection) => drop(sqlx::raw_sql(text).execute(&mut connection).await.unwrap()),
        Beside::Postgres(mut connection) => drop(sqlx::raw_sql(text).execute(&mut connection).await.unwrap()),
    }
}

/// Table and name of every column of text, in their order.
pub(crate) async fn text_columns(directory: &Path) -> Vec<(String, String)> {
    let text = if directory.join(NOTE).exists() {
        "SELECT table_name::text, column_name::text FROM information_schema.columns
         WHERE table_schema = 'public' AND data_type = 'text' AND table_name NOT LIKE '\\_%'"
    } else {
        "SELECT t.name, c.name FROM sqlite_master t JOIN pragma_table_info(t.name) c
         WHERE t.type = 'table' AND c.type = 'TEXT' AND t.name NOT LIKE '\\_%' ESCAPE '\\'"
    };
    let found = Beside::open(directory).await.pairs(text).await;
    let mut columns: Vec<_> = found.into_iter().filter_map(|(table, column)| table.zip(column)).collect();
    columns.sort();
    columns
}

/// The value of a column in the row that a condition finds.
pub(crate) async fn value(directory: &Path, table: &str, column: &str, row: &str) -> Option<String> {
    let found = Beside::open(directory).await.pairs(&format!("SELECT {column}, 'x' FROM {table} WHERE {row}")).await;
    found.into_iter().next().expect("a row").0
}

/// Puts a value into a column of the row that a condition finds.
pub(crate) async fn set(directory: &Path, table: &str, column: &str, row: &str, value: Option<&str>) {
    let value = value.map_or("NULL".to_owned(), |value| format!("'{}'", value.replace('\'', "''")));
    execute(directory, &format!("UPDATE {table} SET {column} = {value} WHERE {row}")).await;
}

/// A condition that goes on finding the row which `row` finds now.
pub(crate) async fn pinned(directory: &Path, table: &str, row: &str) -> String {
    let key = match table {
        "changes" => "revision",
        "events" => "id",
        "projects" => "id",
        _ => return row.to_owned(),
    };
    let found = Beside::open(directory).await;
    let found = found.pairs(&format!("SELECT CAST({key} AS TEXT), 'x' FROM {table} WHERE {row}")).await;
    let key_of_row = found.into_iter().next().and_then(|(found, _)| found).expect("a row");
    format!("CAST({key} AS TEXT) = '{key_of_row}'")
}

/// The URL of a test's database.
pub(crate) fn url_in(directory: &Path) -> String {
    std::fs::read_to_string(directory.join(NOTE)).unwrap()
}

/// The same suite over the other store: this program runs itself once more. Every statement of the store is among them.
#[test]
fn every_test_of_what_is_kept_passes_over_postgresql_too() {
    if over_postgres() {
        return;
    }
    // This one, and those that have a store of their own.
    let others = ["every_test_of_what_is_kept_passes_over_postgresql_too", "postgres::", "versions::"];
    // Those to which the store is nothing: descriptions and refusals.
    let refusing = [
        "openapi::",
        "http::",
        "projects::wrong_projects_are_refused",
        "domains::each_kind_of_wrong_name_has_its_own_code",
        "domains::scopes_are_asked_for",
        "domains::a_dry_run_shows_records_and_conflicts_and_changes_nothing",
        "keys::wrong_keys_are_refused",
        "webhooks::lifecycle::wrong_webhooks_are_refused",
        "feed::the_stream_needs_the_gateways_token_and_a_name",
        "feed::heartbeats_go_on_and_name_the_newest_revision",
        "feed::every_line_fits_the_bound_both_sides_agreed_on",
        "dashboard::pages::every_page_is_small",
    ];
    // Those about what DNS, an authority or a receiver does: what is written then, others write too.
    let about_neighbours = [
        "verification::",
        "acme::pebble::",
        "acme::a_name_of_two_hundred_characters",
        "acme::another_authority_is_asked",
        "acme::an_authority_that_fails_is_replaced",
        "acme::a_certificate_for_another_name",
        "domains_added_all_at_once",
        "acme::crowds::a_project_whose_orders_hang",
        "certificates::the_authority_that_caa_permits",
        "certificates::failed_orders_are_repeated_ever_rarer",
        "certificates::what_caa_may_say_about_us",
        "webhooks::receivers_in_python_verify",
        "webhooks::no_message_goes_to_a_private_address",
    ];
    let skipped = others.iter().chain(&refusing).chain(&about_neighbours);
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.env(OVER_POSTGRES, "1").args(skipped.flat_map(|name| ["--skip", *name]));
    let output = again.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let passed = text.lines().filter(|line| line.starts_with("test ") && line.ends_with("... ok")).count();
    assert!(passed > 70, "{passed} tests ran: {text}");
}
