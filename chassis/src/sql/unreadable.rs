//! The currently unreadable rows of a database: one list for all of its connections.

use std::collections::BTreeMap;
use std::time::Instant;

use parking_lot::Mutex;

/// The longest list. Further rows are neither logged nor listed.
pub const UNREADABLE_MAX: usize = 1_000;

/// Identifies a row: its table, and its key in one or two parts. The second part is the project if the row belongs to
/// one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPlace {
    /// The table's name.
    pub table: &'static str,
    /// The row's key within it.
    pub row: String,
    /// What it belongs to; may be empty.
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
struct KnownRow {
    bad: BadColumn,
    read: Instant,
}

/// The list. Each row is listed once.
#[derive(Debug, Default)]
pub struct UnreadableRows {
    known: Mutex<BTreeMap<RowPlace, KnownRow>>,
}

impl UnreadableRows {
    /// Records a row. It is logged if the row or its error is new.
    pub fn record(&self, place: &RowPlace, bad: &BadColumn) {
        let mut known = self.known.lock();
        let read = Instant::now();
        if let Some(known) = known.get_mut(place) {
            known.read = read;
            if known.bad == *bad {
                return;
            }
        } else if known.len() >= UNREADABLE_MAX {
            return;
        }
        known.insert(place.clone(), KnownRow { bad: bad.clone(), read });
        drop(known);
        tracing::error!(
            table = place.table,
            row = place.row,
            of = place.of,
            column = bad.column,
            error = bad.reason,
            "skipped an unreadable database row; repair the column, or delete the row"
        );
    }

    /// Removes a row that is readable again, or deleted.
    pub fn forget(&self, place: &RowPlace) {
        let mut known = self.known.lock();
        if !known.is_empty() {
            known.remove(place);
        }
    }

    /// Removes the deleted rows for which `are_gone` is true.
    pub fn forget_where(&self, are_gone: impl Fn(&RowPlace) -> bool) {
        self.known.lock().retain(|place, _| !are_gone(place));
    }

    /// Removes rows that were last read before `moment`: a statement deleted them without naming them, or they have
    /// another key now. A row that still exists is recorded again when it is read.
    pub fn forget_unread_since(&self, moment: Instant) {
        self.known.lock().retain(|_, known| known.read >= moment);
    }

    /// The rows, at most `limit`.
    pub fn known(&self, limit: usize) -> Vec<(RowPlace, BadColumn)> {
        self.known.lock().iter().take(limit).map(|(place, known)| (place.clone(), known.bad.clone())).collect()
    }

    /// Number of rows of a table in the list.
    pub fn count(&self, table: &str) -> usize {
        self.known.lock().keys().filter(|place| place.table == table).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_bad_rows_has_a_bound() {
        let rows = UnreadableRows::default();
        let bad = BadColumn { column: "body", reason: "damaged".to_owned() };
        let place = |number: usize| RowPlace { table: "t", row: number.to_string(), of: String::new() };
        for number in 0..UNREADABLE_MAX + 10 {
            rows.record(&place(number), &bad);
            rows.record(&place(number), &bad);
        }
        assert_eq!((rows.count("t"), rows.count("u"), rows.known(5).len()), (UNREADABLE_MAX, 0, 5));
        rows.forget(&place(0));
        rows.record(&place(UNREADABLE_MAX + 20), &bad);
        assert_eq!(rows.count("t"), UNREADABLE_MAX);
        rows.forget_where(|place| place.table == "t");
        assert_eq!(rows.count("t"), 0);
    }

    #[test]
    fn a_row_that_is_no_longer_read_leaves_the_list() {
        let rows = UnreadableRows::default();
        let bad = BadColumn { column: "body", reason: "damaged".to_owned() };
        let place = |row: &str| RowPlace { table: "t", row: row.to_owned(), of: String::new() };
        rows.record(&place("gone"), &bad);
        rows.record(&place("there"), &bad);
        let since = Instant::now();
        rows.record(&place("there"), &bad);
        rows.forget_unread_since(since);
        assert_eq!(rows.known(5), [(place("there"), bad)]);
    }
}
