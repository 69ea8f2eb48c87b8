//! The rows of a database that could not be read when they were read last: one list for all of its connections.

use std::collections::BTreeMap;
use std::time::Instant;

use parking_lot::Mutex;

/// Rows that are remembered. Further ones are neither logged nor listed.
pub const UNREADABLE_MAX: usize = 1_000;

/// Which row: its table, and its key in one or two parts. The second is the project where the row belongs to one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPlace {
    /// The table's name.
    pub table: &'static str,
    /// The row's name within it.
    pub row: String,
    /// What it belongs to; may be empty.
    pub of: String,
}

/// What cannot be read in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadColumn {
    /// The first column that cannot be read.
    pub column: &'static str,
    /// Why.
    pub reason: String,
}

/// What is wrong with a row, and when it was read last.
#[derive(Debug)]
struct Noted {
    bad: BadColumn,
    read: Instant,
}

/// The list. A row is on it once, however often it is read.
#[derive(Debug, Default)]
pub struct UnreadableRows {
    noted: Mutex<BTreeMap<RowPlace, Noted>>,
}

impl UnreadableRows {
    /// Notes a row. It is logged when it, or what is wrong with it, is new.
    pub fn note(&self, place: &RowPlace, bad: &BadColumn) {
        let mut noted = self.noted.lock();
        let read = Instant::now();
        if let Some(known) = noted.get_mut(place) {
            known.read = read;
            if known.bad == *bad {
                return;
            }
        } else if noted.len() >= UNREADABLE_MAX {
            return;
        }
        noted.insert(place.clone(), Noted { bad: bad.clone(), read });
        drop(noted);
        tracing::error!(
            table = place.table,
            row = place.row,
            of = place.of,
            column = bad.column,
            error = bad.reason,
            "database row unreadable: it is set aside and everything else goes on; mend the column, or remove what it describes"
        );
    }

    /// A row reads again, or is deleted.
    pub fn forget(&self, place: &RowPlace) {
        let mut noted = self.noted.lock();
        if !noted.is_empty() {
            noted.remove(place);
        }
    }

    /// The rows that `are_gone` are deleted.
    pub fn forget_where(&self, are_gone: impl Fn(&RowPlace) -> bool) {
        self.noted.lock().retain(|place, _| !are_gone(place));
    }

    /// Rows that were read last before a moment: deleted by a statement that named none of them, or of another key by now.
    /// One that is still there is noted anew when it is read.
    pub fn forget_unread_since(&self, moment: Instant) {
        self.noted.lock().retain(|_, noted| noted.read >= moment);
    }

    /// The rows, at most `limit`.
    pub fn noted(&self, limit: usize) -> Vec<(RowPlace, BadColumn)> {
        self.noted.lock().iter().take(limit).map(|(place, noted)| (place.clone(), noted.bad.clone())).collect()
    }

    /// How many of a table there are.
    pub fn count(&self, table: &str) -> usize {
        self.noted.lock().keys().filter(|place| place.table == table).count()
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
            rows.note(&place(number), &bad);
            rows.note(&place(number), &bad);
        }
        assert_eq!((rows.count("t"), rows.count("u"), rows.noted(5).len()), (UNREADABLE_MAX, 0, 5));
        rows.forget(&place(0));
        rows.note(&place(UNREADABLE_MAX + 20), &bad);
        assert_eq!(rows.count("t"), UNREADABLE_MAX);
        rows.forget_where(|place| place.table == "t");
        assert_eq!(rows.count("t"), 0);
    }

    #[test]
    fn a_row_that_is_not_read_any_more_leaves_the_list() {
        let rows = UnreadableRows::default();
        let bad = BadColumn { column: "body", reason: "damaged".to_owned() };
        let place = |row: &str| RowPlace { table: "t", row: row.to_owned(), of: String::new() };
        rows.note(&place("gone"), &bad);
        rows.note(&place("there"), &bad);
        let since = Instant::now();
        rows.note(&place("there"), &bad);
        rows.forget_unread_since(since);
        assert_eq!(rows.noted(5), [(place("there"), bad)]);
    }
}
