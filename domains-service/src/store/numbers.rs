//! Repair of damaged numbers in columns that SQL compares: SQLite may hold text in them, or a revision never given out.
//!
//! SQLite sorts text after all numbers, so a comparison never finds such a row: a delivery would never be due, and a
//! withdrawal would never end. A process seen in the future would be waited for without end, and after the highest
//! number of an event SQLite gives out random ones. The repaired value is a safe one: due now, or a longer wait than
//! needed. The change that a withdrawal waits for is unknown then, and the log may have lost it: every gateway is sent
//! a snapshot, and the withdrawal waits for that. The worker repairs due times of domains (`domains`).

use chassis::sql::{Found, Kind, query_as, query_scalar};

use super::log::of_revision;
use super::{Result, Write};

/// Above the number of every event.
const EVENTS_MAX: i64 = 1 << 53;

/// The replacement of a damaged number.
#[derive(Clone, Copy, Debug)]
enum Safe {
    /// The present time.
    Now,
    /// The present time, also for a number in the future.
    Reported,
    /// The number after the highest possible one of an event; new events of SQLite get it by the highest one there is.
    Event,
    /// The revision of a snapshot that every gateway gets now; also for numbers above the newest revision.
    Snapshot,
    /// The beginning of time.
    Never,
}

/// An entry of [`COLUMNS`] whose rows get the replacement as it is.
macro_rules! column {
    ($table:literal, $column:literal, $safe:ident, $rows:literal) => {
        ($table, $column, Safe::$safe, concat!("UPDATE ", $table, " SET ", $column, " = $1 WHERE ", $rows))
    };
}

/// Table, column, replacement, and the statement, which returns the names of the rows in two parts.
const COLUMNS: [(&str, &str, Safe, &str); 8] = [
    column!("acme_orders", "abandoned_at", Now, "abandoned_at >= '' RETURNING url, authority"),
    (
        "domains",
        "removal",
        Safe::Snapshot,
        // Only a domain that is being removed has one. Another domain must stay, whatever is in this column.
        "UPDATE domains SET removal = CASE status WHEN 'removing' THEN $1 END
         WHERE removal > $1 OR removal IS NOT NULL AND status <> 'removing' RETURNING name, project",
    ),
    column!("edge_bans", "reported_at", Never, "reported_at >= '' RETURNING node, ''"),
    (
        "events",
        "id",
        Safe::Event,
        "UPDATE events SET id = (SELECT COALESCE(MAX(id), 0) + 1 FROM events WHERE id < $1)
         WHERE id = (SELECT MAX(id) FROM events WHERE id >= $1) RETURNING CAST(id AS TEXT), project",
    ),
    column!(
        "processes",
        "last_seen_at",
        Reported,
        "last_seen_at > CAST($1 AS BIGINT) + 3600000 RETURNING process, gateway"
    ),
    column!("webhook_deliveries", "due_at", Now, "due_at >= '' RETURNING CAST(id AS TEXT), endpoint"),
    column!("withdrawals", "revision", Snapshot, "revision > $1 RETURNING which, project"),
    column!("withdrawals", "since", Now, "since >= '' RETURNING which, project"),
];

/// Whether a withdrawal waits for an impossible or lost revision.
const WAITS_FOR_EVER: &str = "SELECT COUNT(*) FROM
    (SELECT removal FROM domains WHERE removal > $1 AND status = 'removing'
     UNION ALL SELECT revision FROM withdrawals WHERE revision > $1) AS waits";

/// Replaces damaged numbers, and logs the rows.
pub(crate) async fn put_right(write: &mut Write) -> Result<()> {
    let may_have_text = write.connection().kind() == Kind::Sqlite;
    let newest = of_revision(write.revision());
    let waiting: i64 = query_scalar(WAITS_FOR_EVER).bind(newest).fetch_one(write.connection()).await?;
    if waiting > 0 {
        write.resend().await?;
    }
    let (now, snapshot) = (write.now().0, of_revision(write.revision()));
    for (table, column, safe, statement) in COLUMNS {
        if !may_have_text && matches!(safe, Safe::Now | Safe::Never | Safe::Event) {
            continue;
        }
        let number = match safe {
            Safe::Now | Safe::Reported => now,
            Safe::Event => EVENTS_MAX,
            Safe::Snapshot => snapshot,
            Safe::Never => 0,
        };
        let rows: Vec<Found<(String, String)>> = query_as(statement).bind(number).fetch_all(write.connection()).await?;
        for Found { row: (row, of), .. } in rows {
            tracing::error!(
                table,
                column,
                row,
                of,
                number,
                "repaired a damaged number in a database column; no action is needed"
            );
        }
    }
    Ok(())
}
