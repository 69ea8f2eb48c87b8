//! What can be wrong with a store, in the words the operator counts.

use sqlx::error::ErrorKind;

/// The kinds of trouble, each with its own way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// Locked, or more work waiting than there are places: it passes.
    Busy,
    /// No space left on the disk. Reading goes on.
    Full,
    /// What was read is not what was written. An operator must restore the file.
    Corrupt,
    /// The disk or the file system refused.
    Io,
    /// Anything else.
    Other,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Busy, Self::Full, Self::Corrupt, Self::Io, Self::Other];

    /// The word in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Full => "full",
            Self::Corrupt => "corrupt",
            Self::Io => "io",
            Self::Other => "other",
        }
    }
}

/// The store could not answer. The text is for the log, never for a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct StoreError {
    /// What kind of trouble.
    pub kind: FaultKind,
    text: String,
}

impl StoreError {
    /// With a sentence for the log.
    pub fn new(kind: FaultKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub(crate) fn corrupt(text: impl Into<String>) -> Self {
        Self::new(FaultKind::Corrupt, text)
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        Self { kind: kind_of(&error), text: error.to_string() }
    }
}

fn kind_of(error: &sqlx::Error) -> FaultKind {
    match error {
        sqlx::Error::PoolTimedOut => FaultKind::Busy,
        sqlx::Error::Io(_) => FaultKind::Io,
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => FaultKind::Corrupt,
        sqlx::Error::Database(database) => match database.code().and_then(|code| code.parse::<i32>().ok()) {
            // The low byte of an extended SQLite code is the primary one.
            Some(code) => kind_of_sqlite(code & 0xff),
            None if database.kind() == ErrorKind::CheckViolation => FaultKind::Corrupt,
            None => FaultKind::Other,
        },
        _ => FaultKind::Other,
    }
}

/// SQLite's primary result codes (<https://www.sqlite.org/rescode.html>).
fn kind_of_sqlite(code: i32) -> FaultKind {
    const BUSY: i32 = 5;
    const LOCKED: i32 = 6;
    const READONLY: i32 = 8;
    const IOERR: i32 = 10;
    const CORRUPT: i32 = 11;
    const FULL: i32 = 13;
    const CANTOPEN: i32 = 14;
    const FORMAT: i32 = 24;
    const NOTADB: i32 = 26;
    match code {
        BUSY | LOCKED => FaultKind::Busy,
        FULL => FaultKind::Full,
        CORRUPT | FORMAT | NOTADB => FaultKind::Corrupt,
        READONLY | IOERR | CANTOPEN => FaultKind::Io,
        _ => FaultKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_codes_of_sqlite_fall_under_their_primary_ones() {
        const IOERR_FSYNC: i32 = 1034;
        const BUSY_SNAPSHOT: i32 = 517;
        assert_eq!(kind_of_sqlite(IOERR_FSYNC & 0xff), FaultKind::Io);
        assert_eq!(kind_of_sqlite(BUSY_SNAPSHOT & 0xff), FaultKind::Busy);
        assert_eq!(kind_of_sqlite(13), FaultKind::Full);
        assert_eq!(kind_of_sqlite(26), FaultKind::Corrupt);
        assert_eq!(kind_of(&sqlx::Error::PoolTimedOut), FaultKind::Busy);
    }
}
