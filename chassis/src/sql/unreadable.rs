//! The currently unreadable rows of a database: one list for all of its connections.

use std::collections::BTreeMap;
use std::time::Instant;

use parking_lot::Mutex;

/// The longest list. Further rows are neither logged nor listed.
pub const UNREADABLE_MAX: usize = 1_000;

/// Identifies a row: its table, and its key in one or two parts. The second part is the project if the row belongs to
/// one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey {
    /// The table's name.
    pub table: &'static str,
    /// The row's key within it.
    pub row: String,
    /// The owner of the row; may be empty.
    pub of: String,
}

/// The unreadable column of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadColumn {
    /// The first unreadable column.
    pub column: &'static str,
    /// Why.
    pub reason: String,
}

/// The error of a row, and when it was last read.
#[derive(Debug)]
struct Entry {
    bad: BadColumn,
    read: Instant,
}

/// The list. Each row is listed once.
#[derive(Debug, Default)]
pub struct UnreadableRows {
    entries: Mutex<BTreeMap<RowKey, Entry>>,
}

impl UnreadableRows {
    /// Records a row. It is logged if the row or its error is new.
    pub fn record(&self, key: &RowKey, bad: &BadColumn) {
        let mut entries = self.entries.lock();
        let read = Instant::now();
        if let Some(known) = entries.get_mut(key) {
            known.read = read;
            if known.bad == *bad {
                return;
            }
        } else if entries.len() >= UNREADABLE_MAX {
            return;
        }
        entries.insert(key.clone(), Entry { bad: bad.clone(), read });
        drop(entries);
        tracing::error!(
            table = key.table,
            row = key.row,
            of = key.of,
            column = bad.column,
            error = bad.reason,
            "skipped an unreadable database row; repair the column, or delete the row"
        );
    }

    /// Removes a row that is readable again, or deleted.
    pub fn forget(&self, key: &RowKey) {
        let mut entries = self.entries.lock();
        if !entries.is_empty() {
            entries.remove(key);
        }
    }

    /// Removes the deleted rows for which `are_gone` is true.
    pub fn forget_where(&self, are_gone: impl Fn(&RowKey) -> bool) {
        self.entries.lock().retain(|key, _| !are_gone(key));
    }

    /// Removes rows that were last read before `moment`: a statement deleted them without naming them, or they have
    /// another key now. A row that still exists is recorded again when it is read.
    pub fn forget_unread_since(&self, moment: Instant) {
        self.entries.lock().retain(|_, entry| entry.read >= moment);
    }

    /// The rows, at most `limit`.
    pub fn entries(&self, limit: usize) -> Vec<(RowKey, BadColumn)> {
        self.entries.lock().iter().take(limit).map(|(key, entry)| (key.clone(), entry.bad.clone())).collect()
    }

    /// Number of rows of a table in the list.
    pub fn count(&self, table: &str) -> usize {
        self.entries.lock().keys().filter(|key| key.table == table).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_bad_rows_has_a_bound() {
        let rows = UnreadableRows::default();
        let bad = BadColumn { column: "body", reason: "damaged".to_owned() };
        let key = |number: usize| RowKey { table: "t", row: number.to_string(), of: String::new() };
        for number in 0..UNREADABLE_MAX + 10 {
            rows.record(&key(number), &bad);
            rows.record(&key(number), &bad);
        }
        assert_eq!((rows.count("t"), rows.count("u"), rows.entries(5).len()), (UNREADABLE_MAX, 0, 5));
        rows.forget(&key(0));
        rows.record(&key(UNREADABLE_MAX + 20), &bad);
        assert_eq!(rows.count("t"), UNREADABLE_MAX);
        rows.forget_where(|key| key.table == "t");
        assert_eq!(rows.count("t"), 0);
    }

    #[test]
    fn a_row_that_is_no_longer_read_leaves_the_list() {
        let rows = UnreadableRows::default();
        let bad = BadColumn { column: "body", reason: "damaged".to_owned() };
        let key = |row: &str| RowKey { table: "t", row: row.to_owned(), of: String::new() };
        rows.record(&key("gone"), &bad);
        rows.record(&key("there"), &bad);
        let since = Instant::now();
        rows.record(&key("there"), &bad);
        rows.forget_unread_since(since);
        assert_eq!(rows.entries(5), [(key("there"), bad)]);
    }
}
