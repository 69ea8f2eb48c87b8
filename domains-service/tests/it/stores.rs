//! The database of a test run: SQLite, or PostgreSQL in a second run.

#[path = "../../../chassis/tests/support/postgres.rs"]
pub(crate) mod postgres;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use chassis::secret::Secret;
use chassis::sql::{Location, PostgresSettings};
use postgres::{Server, name_in};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Connection as _};

/// Set when the tests run over PostgreSQL.
const OVER_POSTGRES: &str = "TOLLHOUSE_TESTS_OVER_POSTGRES";

/// The file in which a test over PostgreSQL stores the address of its database.
const NOTE: &str = "database.url";

/// Connections of one service: the tests of a process share one server.
const CONNECTIONS: u32 = 5;

/// Whether the tests run over PostgreSQL.
#[expect(clippy::disallowed_methods, reason = "tests have no file of settings; the command that runs them sets this")]
pub(crate) fn over_postgres() -> bool {
    std::env::var_os(OVER_POSTGRES).is_some()
}

/// The database of the test with this directory, the same on every call.
pub(crate) fn place(directory: &Path) -> Location {
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

/// Which database a test that has this directory has.
pub(crate) fn database(directory: &Path) -> String {
    if directory.join(NOTE).exists() { url_in(directory) } else { directory.display().to_string() }
}

/// A directory for a test over a database of a server.
pub(crate) fn in_postgres(url: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(NOTE), url).unwrap();
    directory
}

/// All bytes of a test's database.
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

/// A copy of the database as a crash now would leave it.
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

/// A connection to a test's database, in addition to the service's.
enum Beside {
    Sqlite(SqliteConnection),
    Postgres(sqlx::PgConnection),
}

impl Beside {
    async fn open(directory: &Path) -> Self {
        if directory.join(NOTE).exists() {
            return Self::Postgres(sqlx::PgConnection::connect(&url_in(directory)).await.unwrap());
        }
        Self::Sqlite(sqlite(directory).await)
    }

    /// Two columns of text of all rows.
    async fn pairs(self, text: &str) -> Vec<(Option<String>, Option<String>)> {
        let text = AssertSqlSafe(text.to_owned());
        match self {
            Self::Sqlite(mut connection) => sqlx::query_as(text).fetch_all(&mut connection).await.unwrap(),
            Self::Postgres(mut connection) => sqlx::query_as(text).fetch_all(&mut connection).await.unwrap(),
        }
    }
}

/// Executes statements directly in the database, without the service.
pub(crate) async fn execute(directory: &Path, text: &str) {
    try_execute(directory, text).await.unwrap();
}

/// Table and name of every column of text, in their order.
pub(crate) async fn text_columns(directory: &Path) -> Vec<(String, String)> {
    let texts = columns(directory).await.into_iter().filter(|column| column.kind == "TEXT");
    let mut texts: Vec<_> = texts.map(|column| (column.table, column.name)).collect();
    texts.sort();
    texts
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

/// A column of a table.
pub(crate) struct Column {
    pub(crate) table: String,
    pub(crate) name: String,
    /// Its type, as the schema has it; over PostgreSQL `TEXT` and others.
    pub(crate) kind: String,
}

/// Every column of every table, in the order of the tables.
pub(crate) async fn columns(directory: &Path) -> Vec<Column> {
    let text = if directory.join(NOTE).exists() {
        "SELECT table_name || ' ' || column_name, upper(data_type)::text FROM information_schema.columns
         WHERE table_schema = current_schema() AND table_name NOT LIKE '\\_%' ORDER BY table_name COLLATE \"C\", ordinal_position"
    } else {
        "SELECT t.name || ' ' || c.name, c.type FROM sqlite_schema t, pragma_table_info(t.name) c
         WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND t.name NOT LIKE '\\_%' ESCAPE '\\'
         ORDER BY t.name, c.cid"
    };
    let found = Beside::open(directory).await.pairs(text).await.into_iter();
    let columns = found.map(|(column, kind)| {
        let (column, kind) = (column.unwrap(), kind.unwrap());
        let (table, name) = column.split_once(' ').unwrap();
        Column { table: table.to_owned(), name: name.to_owned(), kind }
    });
    columns.collect()
}

/// SQLite's number of the row that a condition finds.
pub(crate) async fn row_number(directory: &Path, table: &str, row: &str) -> Option<i64> {
    let text = format!("SELECT rowid FROM {table} WHERE {row} LIMIT 1");
    sqlx::query_scalar(AssertSqlSafe(text)).fetch_optional(&mut sqlite(directory).await).await.unwrap()
}

/// The value of a column as SQL, in SQLite's row of this number; `None` when the row is gone.
pub(crate) async fn quoted(directory: &Path, table: &str, column: &str, row: i64) -> Option<String> {
    // Invalid UTF-8 in a text column too: quoted as its bytes.
    let shown = format!(
        "CASE typeof({column}) WHEN 'text' THEN 'CAST(x''' || hex({column}) || ''' AS TEXT)' ELSE quote({column}) END"
    );
    let text = format!("SELECT {shown} FROM {table} WHERE rowid = {row}");
    sqlx::query_scalar(AssertSqlSafe(text)).fetch_optional(&mut sqlite(directory).await).await.unwrap()
}

/// The same of a value.
pub(crate) async fn quoted_value(directory: &Path, value: &str) -> String {
    let text = format!(
        "SELECT CASE typeof(v) WHEN 'text' THEN 'CAST(x''' || hex(v) || ''' AS TEXT)' ELSE quote(v) END
         FROM (SELECT {value} AS v)"
    );
    sqlx::query_scalar(AssertSqlSafe(text)).fetch_one(&mut sqlite(directory).await).await.unwrap()
}

/// Puts a value, as SQL, into a column of SQLite's row of this number, whatever refers to it.
pub(crate) async fn put(directory: &Path, table: &str, column: &str, row: i64, value: &str) -> Result<(), sqlx::Error> {
    let put = format!("UPDATE OR REPLACE {table} SET {column} = {value} WHERE rowid = {row}");
    try_execute(directory, &format!("PRAGMA foreign_keys = OFF; {put}")).await
}

/// Executes statements directly in the database, unless it refuses.
pub(crate) async fn try_execute(directory: &Path, text: &str) -> Result<(), sqlx::Error> {
    let text = AssertSqlSafe(text.to_owned());
    match Beside::open(directory).await {
        Beside::Sqlite(mut connection) => sqlx::raw_sql(text).execute(&mut connection).await.map(drop),
        Beside::Postgres(mut connection) => sqlx::raw_sql(text).execute(&mut connection).await.map(drop),
    }
}

/// A condition that keeps finding the row which `row` finds now.
pub(crate) async fn pinned(directory: &Path, table: &str, row: &str) -> String {
    let key = match table {
        "changes" => "revision",
        "events" | "projects" => "id",
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

/// The mark of a revision, where the database has one.
pub(crate) async fn mark_of(directory: &Path, revision: u64) -> Option<String> {
    let text = format!("SELECT CAST(mark AS TEXT), 'x' FROM changes WHERE revision = {revision}");
    let mark: i64 = Beside::open(directory).await.pairs(&text).await.into_iter().next()?.0?.parse().unwrap();
    Some(format!("{mark:016x}"))
}

/// The newest revision in the log before this one; a lost row leaves a gap. 0 if there is none.
pub(crate) async fn revision_before(directory: &Path, revision: u64) -> u64 {
    let text =
        format!("SELECT CAST(MAX(revision) AS TEXT), 'x' FROM changes WHERE revision > 0 AND revision < {revision}");
    let found = Beside::open(directory).await.pairs(&text).await.into_iter().next();
    found.and_then(|(revision, _)| revision).map_or(0, |revision| revision.parse().unwrap())
}

/// The tables of a test's database and their columns, read from the database itself.
pub(crate) async fn schema(directory: &Path) -> BTreeMap<String, Vec<String>> {
    let mut tables = BTreeMap::<String, Vec<String>>::new();
    for column in columns(directory).await {
        tables.entry(column.table).or_default().push(column.name);
    }
    assert!(tables.len() > 10, "{tables:?}");
    tables
}

/// Number of rows with one of these texts in any column, by table, without empty tables.
pub(crate) async fn rows_with(directory: &Path, texts: &[&str]) -> BTreeMap<String, i64> {
    assert!(texts.iter().all(|text| text.len() > 3 && !text.contains('\'')), "{texts:?}");
    let mut counts = BTreeMap::new();
    for (table, columns) in schema(directory).await {
        let count = if directory.join(NOTE).exists() {
            let has = |text: &&str| format!("strpos(row_to_json(t)::text, '{text}') > 0");
            let any = texts.iter().map(has).collect::<Vec<_>>().join(" OR ");
            let counted = Server::shared()
                .sql(name_in(&url_in(directory)), &format!("SELECT COUNT(*) FROM {table} t WHERE {any}"));
            counted.parse().unwrap()
        } else {
            let has = |text: &&str| {
                let columns = columns.iter().map(|column| format!("instr(CAST({column} AS TEXT), '{text}') > 0"));
                columns.collect::<Vec<_>>().join(" OR ")
            };
            let any = texts.iter().map(has).collect::<Vec<_>>().join(" OR ");
            let text = format!("SELECT COUNT(*) FROM {table} WHERE {any}");
            sqlx::query_scalar(AssertSqlSafe(text)).fetch_one(&mut sqlite(directory).await).await.unwrap()
        };
        if count > 0 {
            counts.insert(table, count);
        }
    }
    counts
}

/// A direct connection to a test's SQLite database.
async fn sqlite(directory: &Path) -> SqliteConnection {
    let file = SqliteConnectOptions::new().filename(directory.join("domains.sqlite"));
    SqliteConnection::connect_with(&file).await.unwrap()
}

/// Tests that do not run over PostgreSQL, by their paths or by modules, each with its reason.
const OVER_SQLITE_ALONE: [(&str, &str); 5] = [
    ("stores::every_test_of_stored_data_passes_over_postgresql_too", "it is the test that runs the others"),
    ("postgres::", "they run over a server of their own, in either run"),
    ("acme::pebble::", "they are about an authority's protocol; acme:: covers what is stored, over both"),
    ("verification::", "they are about answers of DNS; domains:: and acme:: cover what is stored, over both"),
    ("openapi::", "they compare descriptions; no row is written"),
];

/// Whether an entry of the list means this test.
fn is_meant(entry: &str, test: &str) -> bool {
    if entry.ends_with("::") { test.starts_with(entry) } else { test == entry }
}

/// The names in a run's output, one a line, between these words.
fn names<'a>(output: &'a str, before: &str, behind: &str) -> Vec<&'a str> {
    output.lines().filter_map(|line| line.strip_prefix(before)?.strip_suffix(behind)).collect()
}

/// The same suite over the other store: this program runs itself once more. Every statement of the store is among them.
#[test]
fn every_test_of_stored_data_passes_over_postgresql_too() {
    if over_postgres() {
        return;
    }
    let again = || Command::new(std::env::current_exe().unwrap());
    let listed = String::from_utf8(again().arg("--list").output().unwrap().stdout).unwrap();
    let all = names(&listed, "", ": test");
    let mut skipped = Vec::new();
    for (entry, reason) in OVER_SQLITE_ALONE {
        let meant: Vec<&str> = all.iter().copied().filter(|test| is_meant(entry, test)).collect();
        assert!(!meant.is_empty(), "{entry} names no test that is there ({reason}): remove it from the list");
        skipped.extend(meant);
    }
    let mut command = again();
    command.env(OVER_POSTGRES, "1").arg("--exact").args(skipped.iter().flat_map(|name| ["--skip", *name]));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let passed = names(&text, "test ", " ... ok");
    assert_eq!(passed.len(), all.len() - skipped.len(), "every other test runs: {text}");
}
