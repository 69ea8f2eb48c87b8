//! Faults of a store, by the kinds that the metrics count.

use sqlx::error::{DatabaseError, ErrorKind};
use sqlx::postgres::PgDatabaseError;

contract::words! {
    /// The kinds of faults; an operator handles each differently.
    pub enum FaultKind {
        /// A lock is held, or a queue is full. This is temporary.
        Busy = "busy",
        /// The disk is full. Reading works.
        Full = "full",
        /// The data is damaged. An operator must restore the database.
        Corrupt = "corrupt",
        /// The disk or the file system failed, or the server is read-only.
        Io = "io",
        /// The database server is unreachable or does not answer.
        Unreachable = "unreachable",
        /// Any other fault.
        Other = "other",
    }
}

impl FaultKind {
    /// The operator's next step.
    pub(crate) const fn remedy(self) -> &'static str {
        match self {
            Self::Busy => "check the locks and the load of the database",
            Self::Full => chassis::sql::FREE_SPACE,
            Self::Corrupt => "restore a backup (docs/operator/backup.md)",
            Self::Io => "check the disk and the file system; a PostgreSQL server must be the primary",
            Self::Unreachable => "start the database server, or repair the network to it",
            Self::Other => "read the database's message in the log of the orders-service",
        }
    }
}

/// A failure of the store. The text is for the log and never sent to a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct StoreError {
    /// The kind of fault.
    pub kind: FaultKind,
    text: String,
}

impl StoreError {
    /// A fault with a sentence for the log.
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
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::Tls(_) => FaultKind::Unreachable,
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => FaultKind::Corrupt,
        sqlx::Error::Database(error) => match error.try_downcast_ref::<PgDatabaseError>() {
            Some(error) => kind_of_postgres(error.code()),
            None => kind_of_file(error.as_ref()),
        },
        _ => FaultKind::Other,
    }
}

/// PostgreSQL's codes (<https://www.postgresql.org/docs/15/errcodes-appendix.html>).
fn kind_of_postgres(code: &str) -> FaultKind {
    match code {
        // Too many connections, a held lock, a deadlock, a serialization failure, a statement timeout.
        "53300" | "55P03" | "40P01" | "40001" | "57014" => FaultKind::Busy,
        "53100" => FaultKind::Full,
        "XX001" | "XX002" => FaultKind::Corrupt,
        // An I/O error, and a read-only server (a standby).
        "58030" | "25006" => FaultKind::Io,
        // A server that stops, crashed or starts, an ended idle transaction, and every connection error.
        "57P01" | "57P02" | "57P03" | "25P03" => FaultKind::Unreachable,
        _ if code.starts_with("08") => FaultKind::Unreachable,
        _ => FaultKind::Other,
    }
}

fn kind_of_file(error: &dyn DatabaseError) -> FaultKind {
    match error.code().and_then(|code| code.parse::<i32>().ok()) {
        // The low byte of an extended SQLite code is the primary one.
        Some(code) => kind_of_sqlite(code & 0xff),
        None if error.kind() == ErrorKind::CheckViolation => FaultKind::Corrupt,
        None => FaultKind::Other,
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
    use std::borrow::Cow;
    use std::error::Error;

    use super::*;

    /// An error as SQLite's driver reports it: a result code as text, or a failed column check.
    #[derive(Debug, thiserror::Error)]
    #[error("SQLite says {code:?}")]
    struct DriverError {
        code: Option<&'static str>,
        check_failed: bool,
    }

    impl DatabaseError for DriverError {
        fn message(&self) -> &'static str {
            "a test causes it"
        }

        fn code(&self) -> Option<Cow<'_, str>> {
            self.code.map(Cow::Borrowed)
        }

        fn kind(&self) -> ErrorKind {
            if self.check_failed { ErrorKind::CheckViolation } else { ErrorKind::Other }
        }

        fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
            self
        }
    }

    fn kind_of_driver_error(code: Option<&'static str>, check_failed: bool) -> FaultKind {
        StoreError::from(sqlx::Error::Database(Box::new(DriverError { code, check_failed }))).kind
    }

    #[test]
    fn each_sqlite_code_has_its_kind_and_extended_codes_that_of_their_primary_code() {
        for (code, name, kind) in [
            ("5", "BUSY", FaultKind::Busy),
            ("517", "BUSY_SNAPSHOT", FaultKind::Busy),
            ("6", "LOCKED", FaultKind::Busy),
            ("262", "LOCKED_SHAREDCACHE", FaultKind::Busy),
            ("8", "READONLY", FaultKind::Io),
            ("1032", "READONLY_DBMOVED", FaultKind::Io),
            ("10", "IOERR", FaultKind::Io),
            ("1034", "IOERR_FSYNC", FaultKind::Io),
            ("11", "CORRUPT", FaultKind::Corrupt),
            ("523", "CORRUPT_SEQUENCE", FaultKind::Corrupt),
            ("13", "FULL", FaultKind::Full),
            ("14", "CANTOPEN", FaultKind::Io),
            ("270", "CANTOPEN_NOTEMPDIR", FaultKind::Io),
            ("24", "FORMAT", FaultKind::Corrupt),
            ("26", "NOTADB", FaultKind::Corrupt),
            ("1", "ERROR", FaultKind::Other),
            ("2067", "CONSTRAINT_UNIQUE", FaultKind::Other),
        ] {
            assert_eq!(kind_of_driver_error(Some(code), false), kind, "{name}");
        }
        assert_eq!(kind_of_driver_error(None, true), FaultKind::Corrupt);
        assert_eq!(kind_of_driver_error(None, false), FaultKind::Other);
    }

    #[test]
    fn each_driver_error_has_its_kind() {
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        for (error, kind) in [
            (sqlx::Error::PoolTimedOut, FaultKind::Busy),
            (sqlx::Error::Io(refused()), FaultKind::Unreachable),
            (sqlx::Error::Protocol("cut off".to_owned()), FaultKind::Unreachable),
            (sqlx::Error::Tls(Box::new(refused())), FaultKind::Unreachable),
            (sqlx::Error::Decode(Box::new(refused())), FaultKind::Corrupt),
            (sqlx::Error::PoolClosed, FaultKind::Other),
        ] {
            assert_eq!(kind_of(&error), kind, "{error}");
        }
    }

    #[test]
    fn each_postgresql_code_has_its_kind() {
        for (code, kind) in [
            ("53300", FaultKind::Busy),
            ("55P03", FaultKind::Busy),
            ("40P01", FaultKind::Busy),
            ("40001", FaultKind::Busy),
            ("57014", FaultKind::Busy),
            ("53100", FaultKind::Full),
            ("XX001", FaultKind::Corrupt),
            ("XX002", FaultKind::Corrupt),
            ("58030", FaultKind::Io),
            ("25006", FaultKind::Io),
            ("57P01", FaultKind::Unreachable),
            ("57P02", FaultKind::Unreachable),
            ("57P03", FaultKind::Unreachable),
            ("25P03", FaultKind::Unreachable),
            ("08000", FaultKind::Unreachable),
            ("08006", FaultKind::Unreachable),
            ("42P01", FaultKind::Other),
        ] {
            assert_eq!(kind_of_postgres(code), kind, "{code}");
        }
    }
}
