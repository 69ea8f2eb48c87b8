//! Unreadable rows: recorded in one place, so that a bad row stops nothing but itself.
//!
//! A row is unreadable when a column holds a value that this version does not understand: a damaged text, invalid
//! UTF-8, text in place of a number, or a word of a newer version. Each row of a result is read by itself
//! ([`StoredRow`] and [`each`]). An unreadable row is logged once with table, row, column and reason, is counted by
//! table in `domains_unreadable_row`, and is listed by `/internal/status` until it reads again or is deleted.
//!
//! A record that people list or remove is still returned where its identity can be read: bad columns have defaults, and
//! `unreadable` names the first of them. Such a record can be shown and removed, and is never saved over the row.

use chassis::sql::{BadColumn, Builder, Cell, Found, On, Query, QueryAs, Readable, RowKey, UnreadableRows, Value};
use contract::project::{ProjectId, ProjectUid};
use contract::time::UnixMillis;
use sqlx::FromRow;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;

use super::{Result, StoreError};
use crate::project::ProjectRef;

/// Characters of a reason that are kept.
const REASON_CHARACTERS_MAX: usize = 200;

contract::words! {
    /// The tables with rows that are read in this way.
    pub(crate) enum Table {
        AcmeLimits = "acme_limits",
        AcmeOrders = "acme_orders",
        ApiKeys = "api_keys",
        CertificateQueue = "certificate_queue",
        Changes = "changes",
        Credentials = "credentials",
        DashboardSessions = "dashboard_sessions",
        Domains = "domains",
        EdgeBans = "edge_bans",
        Entities = "entities",
        Erasures = "erasures",
        Events = "events",
        GatewayKeys = "gateway_keys",
        Processes = "processes",
        Projects = "projects",
        Settings = "settings",
        UsageDays = "usage_days",
        WebhookDeliveries = "webhook_deliveries",
        WebhookEndpoints = "webhook_endpoints",
        Withdrawals = "withdrawals",
    }
}

/// Identifies a row: its table and its key.
pub(crate) fn key(table: Table, row: impl Into<String>, of: impl Into<String>) -> RowKey {
    RowKey { table: table.as_str(), row: row.into(), of: of.into() }
}

/// Writes a row: a new one, or over the one with the same `key`. The columns `once` keep the values of the first time.
pub(crate) fn upsert<const N: usize>(
    table: Table,
    key: &[&'static str],
    once: &[&str],
    values: [(&'static str, Value); N],
) -> Query {
    let mut statement = Builder::new("INSERT INTO ");
    let names = values.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    list(statement.push(table.as_str()).push(" ("), &names);
    statement.push(") VALUES (");
    for (index, (_, value)) in values.into_iter().enumerate() {
        statement.push(if index == 0 { "" } else { ", " }).push_bind(value);
    }
    list(statement.push(") ON CONFLICT ("), key);
    let changed = names.into_iter().filter(|name| !key.contains(name) && !once.contains(name));
    for (index, name) in changed.enumerate() {
        statement.push(if index == 0 { ") DO UPDATE SET " } else { ", " });
        statement.push(name).push(" = excluded.").push(name);
    }
    statement.build()
}

fn list(statement: &mut Builder, names: &[&'static str]) {
    for (index, name) in names.iter().enumerate() {
        statement.push(if index == 0 { "" } else { ", " }).push(name);
    }
}

/// Reads the columns of a row's key.
pub(crate) type ReadKey = fn(&mut Columns<'_>) -> RowKey;

/// A record that is read from a row.
pub(crate) trait Stored: Send + Unpin + Sized {
    /// Whether it reads only a part of the row, so that success says nothing about the other parts.
    const IS_PART: bool = false;

    /// Which row it is.
    const KEY: ReadKey;

    /// Reads the row. `None` if even its identity is unreadable.
    fn read(row: &mut Columns<'_>) -> Option<Self>;
}

/// A row as it was read.
#[derive(Debug)]
pub(crate) struct StoredRow<T> {
    pub(crate) key: RowKey,
    /// `None` if even its identity is unreadable.
    pub(crate) value: Option<T>,
    /// The first unreadable column.
    pub(crate) bad: Option<BadColumn>,
}

impl<'r, T: Stored> FromRow<'r, SqliteRow> for StoredRow<T> {
    fn from_row(row: &'r SqliteRow) -> Result<Self, sqlx::Error> {
        Columns::read(AnyRow::Sqlite(row))
    }
}

impl<'r, T: Stored> FromRow<'r, PgRow> for StoredRow<T> {
    fn from_row(row: &'r PgRow) -> Result<Self, sqlx::Error> {
        Columns::read(AnyRow::Postgres(row))
    }
}

/// A row of either database.
#[derive(Clone, Copy)]
enum AnyRow<'r> {
    Sqlite(&'r SqliteRow),
    Postgres(&'r PgRow),
}

/// The columns of one row, as they are read. The first that cannot be read is kept.
pub(crate) struct Columns<'r> {
    row: AnyRow<'r>,
    bad: Option<BadColumn>,
    /// The statement lacks a column.
    wrong: Option<sqlx::Error>,
}

impl<'r> Columns<'r> {
    fn read<T: Stored>(row: AnyRow<'r>) -> Result<StoredRow<T>, sqlx::Error> {
        let mut columns = Self { row, bad: None, wrong: None };
        let (key, value) = (T::KEY(&mut columns), T::read(&mut columns));
        columns.wrong.map_or(Ok(StoredRow { key, value, bad: columns.bad }), Err)
    }

    /// The value of a column as the database has it. In place of an unreadable one: 0, `false`, nothing, or the text of
    /// its bytes.
    pub(crate) fn get<T>(&mut self, column: &'static str) -> T
    where
        T: Default + Cell<'r, SqliteRow> + Cell<'r, PgRow>,
    {
        let read = self.checked(|row, bad| match row {
            AnyRow::Sqlite(row) => <T as Cell<'r, SqliteRow>>::read(row, column, column, bad),
            AnyRow::Postgres(row) => <T as Cell<'r, PgRow>>::read(row, column, column, bad),
        });
        read.unwrap_or_default()
    }

    /// All columns of a struct made by [`chassis::record!`].
    pub(crate) fn record<T>(&mut self) -> Option<T>
    where
        T: Readable<'r, SqliteRow> + Readable<'r, PgRow>,
    {
        self.checked(|row, bad| match row {
            AnyRow::Sqlite(row) => <T as Readable<'r, SqliteRow>>::read(row, bad),
            AnyRow::Postgres(row) => <T as Readable<'r, PgRow>>::read(row, bad),
        })
    }

    fn checked<T>(
        &mut self,
        read: impl FnOnce(AnyRow<'r>, &mut Option<BadColumn>) -> Result<T, sqlx::Error>,
    ) -> Option<T> {
        let mut bad = None;
        let read = read(self.row, &mut bad);
        if let Some(BadColumn { column, reason }) = bad {
            self.bad(column, reason);
        }
        read.map_err(|error| self.wrong.get_or_insert(error)).ok()
    }

    /// Text.
    pub(crate) fn text(&mut self, column: &'static str) -> String {
        self.get(column)
    }

    /// A moment.
    pub(crate) fn time(&mut self, column: &'static str) -> UnixMillis {
        UnixMillis(self.get(column))
    }

    /// A moment, if there is one.
    pub(crate) fn time_if_any(&mut self, column: &'static str) -> Option<UnixMillis> {
        self.get::<Option<i64>>(column).map(UnixMillis)
    }

    /// A value of a closed set, or a name, if there is one.
    pub(crate) fn word<T: std::str::FromStr>(&mut self, column: &'static str) -> Option<T> {
        let text = self.get::<Option<String>>(column)?;
        self.parse(column, &text)
    }

    /// A value of a closed set, or a name, from the text of a column.
    pub(crate) fn parse<T: std::str::FromStr>(&mut self, column: &'static str, text: &str) -> Option<T> {
        let read = text.parse().ok();
        if read.is_none() {
            self.bad(column, format!("{text:?} is unknown or malformed"));
        }
        read
    }

    /// JSON, if there is any.
    pub(crate) fn json<T: serde::de::DeserializeOwned>(&mut self, column: &'static str) -> Option<T> {
        let text = self.get::<Option<String>>(column)?;
        serde_json::from_str(&text).map_err(|error| self.bad(column, error.to_string())).ok()
    }

    /// A project, by the columns of its identity and its name.
    pub(crate) fn project(&mut self, uid: &'static str, name: &'static str) -> Option<ProjectRef> {
        let (uid, name) = (self.text(uid), self.text(name));
        let uid = self.parse::<ProjectUid>("project", &uid);
        let name = self.parse::<ProjectId>("project name", &name);
        uid.zip(name).map(|(uid, name)| ProjectRef { uid, name })
    }

    /// A column that cannot be read.
    pub(crate) fn bad(&mut self, column: &'static str, reason: impl Into<String>) {
        self.bad.get_or_insert(bad_column(column, reason));
    }

    /// The first column that cannot be read.
    pub(crate) fn unreadable(&self) -> Option<&'static str> {
        self.bad.as_ref().map(|bad| bad.column)
    }

    /// A record that has a meaning only if the whole row can be read.
    pub(crate) fn whole<T>(&self, record: T) -> Option<T> {
        self.bad.is_none().then_some(record)
    }
}

/// An unreadable column, with a bounded reason.
fn bad_column(column: &'static str, reason: impl Into<String>) -> BadColumn {
    BadColumn { column, reason: reason.into().chars().take(REASON_CHARACTERS_MAX).collect() }
}

/// The value of a row; the error is the key of an unreadable one.
fn read<T: Stored>(list: &UnreadableRows, row: StoredRow<T>) -> Result<T, (RowKey, &'static str)> {
    match &row.bad {
        Some(bad) => list.record(&row.key, bad),
        None if T::IS_PART => {}
        None => list.forget(&row.key),
    }
    row.value.ok_or_else(|| (row.key, row.bad.map_or("", |bad| bad.column)))
}

/// The rows of a statement, without unreadable ones.
pub(crate) async fn all<T: Stored>(on: impl Into<On<'_>>, statement: QueryAs<StoredRow<T>>) -> Result<Vec<T>> {
    let mut on = on.into();
    let rows = statement.fetch_all(on.again()).await?;
    Ok(each(on.unreadable(), rows))
}

/// The row of a statement, if it has one. An unreadable one is an error.
pub(crate) async fn one<T: Stored>(on: impl Into<On<'_>>, statement: QueryAs<StoredRow<T>>) -> Result<Option<T>> {
    let mut on = on.into();
    let row = statement.fetch_optional(on.again()).await?;
    checked(on.unreadable(), row)
}

/// The row of a statement, if it has one that can be read.
pub(crate) async fn readable<T: Stored>(on: impl Into<On<'_>>, statement: QueryAs<StoredRow<T>>) -> Result<Option<T>> {
    Ok(all(on, statement).await?.into_iter().next())
}

/// Reads every row by itself, and leaves out unreadable ones.
pub(crate) fn each<T: Stored>(list: &UnreadableRows, rows: Vec<StoredRow<T>>) -> Vec<T> {
    split(list, rows).0
}

/// The same, with the keys of unreadable rows.
pub(crate) fn split<T: Stored>(list: &UnreadableRows, rows: Vec<StoredRow<T>>) -> (Vec<T>, Vec<RowKey>) {
    let (mut values, mut keys) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        match read(list, row) {
            Ok(value) => values.push(value),
            Err((key, _)) => keys.push(key),
        }
    }
    (values, keys)
}

/// The value of the found row, if any. An unreadable one is recorded and is an error.
pub(crate) fn checked<T: Stored>(list: &UnreadableRows, row: Option<StoredRow<T>>) -> Result<Option<T>> {
    row.map(|row| read(list, row).map_err(|(key, column)| unreadable(&key, column))).transpose()
}

/// The only selected column, as far as it is readable; records an unreadable one.
pub(crate) fn column<T>(list: &UnreadableRows, key: &RowKey, column: &'static str, found: Found<(T,)>) -> T {
    let Found { row: (value,), bad } = found;
    match bad {
        Some(BadColumn { reason, .. }) => record(list, key, column, &reason),
        None => list.forget(key),
    }
    value
}

/// Checks that no column of a record's row was unreadable. Saved over the row, the record would replace what is in it.
pub(crate) fn must_be_whole(unreadable: Option<&'static str>, key: impl FnOnce() -> RowKey) -> Result<()> {
    unreadable.map_or(Ok(()), |column| Err(self::unreadable(&key(), column)))
}

/// The error for a row that cannot be read.
pub(crate) fn unreadable(key: &RowKey, column: &'static str) -> StoreError {
    StoreError::Unreadable { table: key.table, row: key.row.clone(), column }
}

/// Records an unreadable column that was read outside of [`Stored`].
pub(crate) fn record(list: &UnreadableRows, key: &RowKey, column: &'static str, reason: &dyn std::fmt::Display) {
    list.record(key, &bad_column(column, reason.to_string()));
}

/// Forgets unreadable rows of `of` in one table, because they were deleted.
pub(crate) fn forget_all(list: &UnreadableRows, table: Table, of: &str) {
    list.forget_where(|key| key.table == table.as_str() && key.of == of);
}

/// Changes up to this revision are deleted.
pub(crate) fn forget_changes(list: &UnreadableRows, until: i64) {
    let is_past = |row: &str| row.parse::<i64>().is_ok_and(|revision| revision <= until);
    list.forget_where(|key| key.table == Table::Changes.as_str() && is_past(&key.row));
}

/// A project is erased with all of its rows.
pub(crate) fn forget_project(list: &UnreadableRows, uid: &str) {
    list.forget_where(|key| key.of == uid || (key.table == Table::Projects.as_str() && key.row == uid));
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection as _, SqliteConnection};

    use super::*;

    impl Stored for u32 {
        const KEY: ReadKey = |row| key(Table::EdgeBans, row.text("name"), "prj_1");

        fn read(row: &mut Columns<'_>) -> Option<Self> {
            row.word("number")
        }
    }

    async fn row(name: &str, number: &str) -> StoredRow<u32> {
        let mut database = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let row = sqlx::query_as("SELECT $1 AS name, $2 AS number").bind(name).bind(number);
        row.fetch_one(&mut database).await.unwrap()
    }

    #[tokio::test]
    async fn an_unreadable_row_is_recorded_and_skipped_until_it_reads_again() {
        let list = UnreadableRows::default();
        let listed = || {
            let listed = list.entries(10).into_iter();
            listed.map(|(key, bad)| format!("{} {} {}", key.row, bad.column, bad.reason)).collect::<Vec<_>>()
        };
        let (values, keys) = split(&list, vec![row("a", "1").await, row("b", "x").await, row("c", "3").await]);
        assert_eq!((values, keys.len()), (vec![1, 3], 1));
        assert_eq!(listed(), ["b number \"x\" is unknown or malformed"]);
        let error = checked(&list, Some(row("b", "x").await)).unwrap_err();
        assert_eq!(error.to_string(), "column number of the row b of edge_bans cannot be read");
        assert_eq!(checked(&list, Some(row("b", "2").await)).unwrap(), Some(2));
        assert_eq!(listed(), Vec::<String>::new());
        // A column of another kind, whatever the row makes of it.
        let bad = Some(BadColumn { column: "at", reason: "text".to_owned() });
        assert_eq!(each(&list, vec![StoredRow { bad, ..row("e", "5").await }]), [5]);
        assert_eq!(listed(), ["e at text"]);
        each(&list, vec![row("d", "x").await]);
        forget_project(&list, "prj_1");
        assert_eq!(listed(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_reason_has_a_bound() {
        let StoredRow { value, bad, .. } = row("number", &"x".repeat(10_000)).await;
        assert_eq!(value, None);
        assert_eq!(bad.map(|bad| bad.reason.chars().count()), Some(REASON_CHARACTERS_MAX));
    }
}
