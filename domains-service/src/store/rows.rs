//! Unreadable rows: recorded in one place, so that a bad row stops nothing but itself.
//!
//! A row is unreadable when a column holds a value that this version does not understand: a damaged text, invalid
//! UTF-8, text in place of a number, or a word of a newer version. Each row of a result is read by itself ([`Found`]
//! and [`each`]). An unreadable row is logged once with table, row, column and reason, is counted by table in
//! `domains_unreadable_row`, and is listed by `/internal/status` until it reads again or is deleted.
//!
//! A record that people list or remove is still returned where its identity can be read: bad columns have defaults, and
//! `unreadable` names the first of them. Such a record can be shown and removed, and is never saved over the row.

use chassis::sql::{BadColumn, Builder, Found, On, Query, QueryAs, Record, RowKey, UnreadableRows, Value};
use contract::project::{ProjectId, ProjectUid};

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

/// A row as it rests.
pub(crate) trait Stored: Sized {
    /// The value of a row.
    type Value;

    /// Whether it reads only a part of the row, so that success says nothing about the other parts.
    const IS_PART: bool = false;

    /// Which row it is.
    fn key(&self) -> RowKey;

    /// Reads the row. `None` if even its identity is unreadable.
    fn read(self, columns: &mut Columns) -> Option<Self::Value>;
}

/// The columns of one row, as they are read. The first that cannot be read is kept.
#[derive(Debug, Default)]
pub(crate) struct Columns(Option<BadColumn>);

impl Columns {
    /// A value of a closed set, or a name.
    pub(crate) fn word<T: std::str::FromStr>(&mut self, column: &'static str, text: &str) -> Option<T> {
        let read = text.parse().ok();
        if read.is_none() {
            self.bad(column, format!("{text:?} is unknown or malformed"));
        }
        read
    }

    /// JSON.
    pub(crate) fn json<T: serde::de::DeserializeOwned>(&mut self, column: &'static str, text: &str) -> Option<T> {
        serde_json::from_str(text).map_err(|error| self.bad(column, error.to_string())).ok()
    }

    /// A project, by the columns of its identity and its name.
    pub(crate) fn project(&mut self, uid: &str, name: &str) -> Option<ProjectRef> {
        let uid = self.word::<ProjectUid>("project", uid);
        let name = self.word::<ProjectId>("project name", name);
        uid.zip(name).map(|(uid, name)| ProjectRef { uid, name })
    }

    /// A column that cannot be read.
    pub(crate) fn bad(&mut self, column: &'static str, reason: impl Into<String>) {
        let reason = reason.into().chars().take(REASON_CHARACTERS_MAX).collect();
        self.0.get_or_insert(BadColumn { column, reason });
    }

    /// The first column that cannot be read.
    pub(crate) fn unreadable(&self) -> Option<&'static str> {
        self.0.as_ref().map(|bad| bad.column)
    }
}

/// Reads a row; the error is the key of an unreadable one.
fn read<R: Stored>(list: &UnreadableRows, found: Found<R>) -> Result<R::Value, (RowKey, &'static str)> {
    let Found { row, bad } = found;
    let (key, mut columns) = (row.key(), Columns::default());
    if let Some(BadColumn { column, reason }) = bad {
        columns.bad(column, reason);
    }
    let value = row.read(&mut columns);
    match &columns.0 {
        Some(bad) => list.record(&key, bad),
        None if R::IS_PART => {}
        None => list.forget(&key),
    }
    value.ok_or_else(|| (key, columns.unreadable().unwrap_or_default()))
}

/// The rows of a statement, without unreadable ones.
pub(crate) async fn all<R: Stored>(on: impl Into<On<'_>>, statement: QueryAs<Found<R>>) -> Result<Vec<R::Value>>
where
    Found<R>: Record,
{
    let mut on = on.into();
    let rows = statement.fetch_all(on.again()).await?;
    Ok(each(on.unreadable(), rows))
}

/// The row of a statement, if it has one. An unreadable one is an error.
pub(crate) async fn one<R: Stored>(on: impl Into<On<'_>>, statement: QueryAs<Found<R>>) -> Result<Option<R::Value>>
where
    Found<R>: Record,
{
    let mut on = on.into();
    let row = statement.fetch_optional(on.again()).await?;
    checked(on.unreadable(), row)
}

/// The row of a statement, if it has one that can be read.
pub(crate) async fn readable<R: Stored>(on: impl Into<On<'_>>, statement: QueryAs<Found<R>>) -> Result<Option<R::Value>>
where
    Found<R>: Record,
{
    Ok(all(on, statement).await?.into_iter().next())
}

/// Reads every row by itself, and leaves out unreadable ones.
pub(crate) fn each<R: Stored>(list: &UnreadableRows, rows: Vec<Found<R>>) -> Vec<R::Value> {
    split(list, rows).0
}

/// The same, with the keys of unreadable rows.
pub(crate) fn split<R: Stored>(list: &UnreadableRows, rows: Vec<Found<R>>) -> (Vec<R::Value>, Vec<RowKey>) {
    let (mut values, mut keys) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        match read(list, row) {
            Ok(value) => values.push(value),
            Err((key, _)) => keys.push(key),
        }
    }
    (values, keys)
}

/// Reads the found row, if any. An unreadable one is recorded and is an error.
pub(crate) fn checked<R: Stored>(list: &UnreadableRows, row: Option<Found<R>>) -> Result<Option<R::Value>> {
    row.map(|row| read(list, row).map_err(|(key, column)| unreadable(&key, column))).transpose()
}

/// Reads the found row, if any. An unreadable one is recorded and counts as absent.
pub(crate) fn found<R: Stored>(list: &UnreadableRows, row: Option<Found<R>>) -> Option<R::Value> {
    row.and_then(|row| read(list, row).ok())
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

/// The error for a row that cannot be read.
pub(crate) fn unreadable(key: &RowKey, column: &'static str) -> StoreError {
    StoreError::Unreadable { table: key.table, row: key.row.clone(), column }
}

/// Records an unreadable column that was read outside of [`Stored`].
pub(crate) fn record(list: &UnreadableRows, key: &RowKey, column: &'static str, reason: &dyn std::fmt::Display) {
    let mut columns = Columns::default();
    columns.bad(column, reason.to_string());
    if let Some(bad) = &columns.0 {
        list.record(key, bad);
    }
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
    use super::*;

    struct Row(&'static str, &'static str);

    fn row(name: &'static str, number: &'static str) -> Found<Row> {
        Row(name, number).into()
    }

    impl Stored for Row {
        type Value = u32;

        fn key(&self) -> RowKey {
            key(Table::EdgeBans, self.0, "prj_1")
        }

        fn read(self, columns: &mut Columns) -> Option<u32> {
            columns.word("number", self.1)
        }
    }

    #[test]
    fn an_unreadable_row_is_recorded_and_skipped_until_it_reads_again() {
        let list = UnreadableRows::default();
        let listed = || {
            let listed = list.entries(10).into_iter();
            listed.map(|(key, bad)| format!("{} {} {}", key.row, bad.column, bad.reason)).collect::<Vec<_>>()
        };
        let (values, keys) = split(&list, vec![row("a", "1"), row("b", "x"), row("c", "3")]);
        assert_eq!((values, keys.len()), (vec![1, 3], 1));
        assert_eq!(listed(), ["b number \"x\" is unknown or malformed"]);
        let error = checked(&list, Some(row("b", "x"))).unwrap_err();
        assert_eq!(error.to_string(), "column number of the row b of edge_bans cannot be read");
        assert_eq!(checked(&list, Some(row("b", "2"))).unwrap(), Some(2));
        assert_eq!(listed(), Vec::<String>::new());
        // A column of another kind, whatever the row makes of it.
        let bad = Some(BadColumn { column: "at", reason: "text".to_owned() });
        assert_eq!(each(&list, vec![Found { row: Row("e", "5"), bad }]), [5]);
        assert_eq!(listed(), ["e at text"]);
        each(&list, vec![row("d", "x")]);
        forget_project(&list, "prj_1");
        assert_eq!(listed(), Vec::<String>::new());
    }

    #[test]
    fn a_reason_has_a_bound() {
        let mut columns = Columns::default();
        assert_eq!(columns.word::<u32>("number", &"x".repeat(10_000)), None);
        assert_eq!(columns.0.map(|bad| bad.reason.chars().count()), Some(REASON_CHARACTERS_MAX));
    }
}
