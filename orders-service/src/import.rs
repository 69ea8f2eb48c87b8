//! Reads an import: JSON lines in pieces of any size. Every error names its line.
//!
//! The store is written after the last line was read, so a slow sender holds no lock and an invalid line changes
//! nothing. Until then the orders are in memory: at most [`ORDERS_MAX`] of under a hundred bytes each.

use std::fmt;

use crate::json::OrderLine;
use crate::order::Order;
use crate::store::{ImportError, StoreError};

/// Most orders in one import.
pub const ORDERS_MAX: usize = 2_000_000;

/// Most bytes in one import, blank lines included.
pub const BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Most bytes in one line.
pub const LINE_BYTES_MAX: usize = 4_096;

/// U+FEFF in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Why an import failed. No order of it was imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportFailure {
    /// A line is invalid.
    #[error("line {line}: {reason}")]
    Line {
        /// Line number, from 1.
        line: usize,
        /// The error in it.
        reason: String,
    },
    /// More than [`ORDERS_MAX`] orders or [`BYTES_MAX`] bytes.
    #[error("an import has at most {ORDERS_MAX} orders and {BYTES_MAX} bytes; split it")]
    TooLarge,
    /// Another import is in progress.
    #[error("another import is in progress")]
    InProgress,
    /// The project was erased.
    #[error("unknown project")]
    NoProject,
    /// The sender stopped or the connection broke.
    #[error("cannot read the lines: {0}")]
    Broken(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Collects orders from pieces of text.
#[derive(Default)]
pub(crate) struct Collector {
    orders: Vec<Order>,
    /// Line number of each order; blank lines shift it from the order's index plus one.
    lines: Lines,
    unfinished: Vec<u8>,
    line: usize,
    bytes: u64,
}

impl Collector {
    /// Reads the next piece.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<(), ImportFailure> {
        self.bytes = self.bytes.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        if self.bytes > BYTES_MAX {
            return Err(ImportFailure::TooLarge);
        }
        let mut rest = piece;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (head, tail) = rest.split_at(end);
            if self.unfinished.is_empty() {
                self.line(head)?;
            } else {
                self.extend(head)?;
                let line = std::mem::take(&mut self.unfinished);
                self.line(&line)?;
            }
            rest = tail.get(1..).unwrap_or_default();
        }
        self.extend(rest)
    }

    /// Ends the import. The last line may lack its line feed.
    pub(crate) fn finish(mut self) -> Result<(Vec<Order>, Lines), ImportFailure> {
        let line = std::mem::take(&mut self.unfinished);
        if !line.is_empty() {
            self.line(&line)?;
        }
        Ok((self.orders, self.lines))
    }

    fn extend(&mut self, more: &[u8]) -> Result<(), ImportFailure> {
        if self.unfinished.len() + more.len() > LINE_BYTES_MAX {
            return Err(too_long(self.line + 1));
        }
        self.unfinished.extend_from_slice(more);
        Ok(())
    }

    fn line(&mut self, text: &[u8]) -> Result<(), ImportFailure> {
        self.line += 1;
        // Some editors write a byte order mark before the first line.
        let text = if self.line == 1 { text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text) } else { text };
        if text.len() > LINE_BYTES_MAX {
            return Err(too_long(self.line));
        }
        if text.trim_ascii().is_empty() {
            return Ok(());
        }
        let order = chassis::json::object::<OrderLine>(text)
            .map_err(|error| ImportFailure::Line { line: self.line, reason: Reason(&error).to_string() })?;
        if self.orders.len() == ORDERS_MAX {
            return Err(ImportFailure::TooLarge);
        }
        self.lines.record(self.orders.len(), self.line);
        self.orders.push(order.into());
        Ok(())
    }
}

fn too_long(line: usize) -> ImportFailure {
    ImportFailure::Line { line, reason: format!("longer than {LINE_BYTES_MAX} bytes") }
}

/// A parser's error without its line number, which is always 1 because the parser gets one line at a time.
struct Reason<'e>(&'e serde_json::Error);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        let place = format!(" at line {} column {}", self.0.line(), self.0.column());
        match text.strip_suffix(&place) {
            Some(reason) => write!(f, "{reason} (column {})", self.0.column()),
            None => f.write_str(&text),
        }
    }
}

/// Line numbers of orders: one entry (order index, line) for each run of lines without a blank one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Lines(Vec<(usize, usize)>);

impl Lines {
    fn record(&mut self, index: usize, line: usize) {
        let continues = self.0.last().is_some_and(|(from, at)| at + (index - from) == line);
        if !continues {
            self.0.push((index, line));
        }
    }

    /// The line of an order.
    pub(crate) fn of(&self, index: usize) -> usize {
        let run = self.0.iter().rev().find(|(from, _)| *from <= index);
        run.map_or(index + 1, |(from, line)| line + (index - from))
    }

    /// The store's error with line numbers in place of indexes.
    pub(crate) fn explain(&self, error: ImportError, orders: &[i64]) -> ImportFailure {
        let id = |index: usize| orders.get(index).copied().unwrap_or_default();
        match error {
            ImportError::Exists { index } => ImportFailure::Line {
                line: self.of(index),
                reason: format!("the project already has order {}", id(index)),
            },
            ImportError::Repeated { index, first } => ImportFailure::Line {
                line: self.of(index),
                reason: format!("line {} already has order {}", self.of(first), id(index)),
            },
            ImportError::Erased => ImportFailure::NoProject,
            ImportError::Store(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(text: &[u8], piece: usize) -> Result<Vec<(i64, usize)>, ImportFailure> {
        let mut collector = Collector::default();
        for piece in text.chunks(piece) {
            collector.feed(piece)?;
        }
        let (orders, lines) = collector.finish()?;
        Ok(orders.iter().enumerate().map(|(index, order)| (order.id, lines.of(index))).collect())
    }

    fn reason(text: &str) -> String {
        collect(text.as_bytes(), 7).unwrap_err().to_string()
    }

    #[test]
    fn pieces_of_any_size_give_the_same_orders_and_lines() {
        let text = b"{\"id\":1}\n\n{\"id\":2}\r\n{\"id\":3,\"status\":\"shipped\"}\n  \n{\"id\":4}";
        for piece in 1..=text.len() {
            assert_eq!(collect(text, piece).unwrap(), [(1, 1), (2, 3), (3, 4), (4, 6)], "pieces of {piece}");
        }
        assert_eq!(collect(b"", 1).unwrap(), []);
        assert_eq!(collect(b"\xef\xbb\xbf{\"id\":1}\n{\"id\":2}\n", 2).unwrap(), [(1, 1), (2, 2)]);
    }

    #[test]
    fn every_error_names_its_line_and_its_reason() {
        assert_eq!(
            reason("{\"id\":1}\n{\"id\":\"2\"}\n"),
            "line 2: invalid type: string \"2\", expected i64 (column 9)"
        );
        assert!(reason("{\"petId\":1}").starts_with("line 1: missing field `id`"));
        assert!(
            reason("\n\n{\"id\":1,\"colour\":2}").starts_with("line 3: unknown field `colour`, expected one of `id`")
        );
        assert!(reason("{\"id\":1,\"id\":2}").starts_with("line 1: duplicate field `id`"));
        assert!(reason("{\"id\":9223372036854775808}").starts_with("line 1: invalid value"));
        assert!(reason("{\"id\":1,\"quantity\":1.5}").starts_with("line 1: invalid type: floating point"));
        assert!(reason("{\"id\":1,\"shipDate\":\"soon\"}").contains("RFC 3339"));
        assert!(reason("{\"id\":1,\"status\":\"lost\"}").contains("pending, shipped, cancelled"));
        assert!(reason("{\"id\":1} {\"id\":2}").starts_with("line 1: trailing characters"));
        assert!(reason("[1]").starts_with("line 1: invalid type: sequence, expected an object"));
        assert!(reason("{\"id\":1").starts_with("line 1: EOF while parsing"));
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_memory() {
        let long = format!("{{\"id\":1}}\n{{\"id\":2,{}", " ".repeat(LINE_BYTES_MAX));
        assert_eq!(reason(&long), format!("line 2: longer than {LINE_BYTES_MAX} bytes"));
        assert_eq!(collect(long.as_bytes(), long.len()).unwrap_err().to_string(), reason(&long));
    }

    #[test]
    fn errors_of_the_store_name_lines() {
        let mut collector = Collector::default();
        collector.feed(b"{\"id\":7}\n\n{\"id\":8}\n{\"id\":7}\n").unwrap();
        let (orders, lines) = collector.finish().unwrap();
        let ids: Vec<_> = orders.iter().map(|order| order.id).collect();
        let repeated = lines.explain(ImportError::Repeated { index: 2, first: 0 }, &ids);
        assert_eq!(repeated.to_string(), "line 4: line 1 already has order 7");
        let exists = lines.explain(ImportError::Exists { index: 1 }, &ids);
        assert_eq!(exists.to_string(), "line 3: the project already has order 8");
    }

    #[test]
    fn an_endless_import_of_blank_lines_is_refused() {
        let mut collector = Collector { bytes: BYTES_MAX - 3, ..Collector::default() };
        assert_eq!(collector.feed(b"\n\n\n"), Ok(()));
        assert_eq!(collector.feed(b"\n"), Err(ImportFailure::TooLarge));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>, piece in 1_usize..50) {
            let _ = collect(&bytes, piece);
        }
    }
}
