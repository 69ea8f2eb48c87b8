//! Gateway processes on record.
//!
//! The rows say only which processes are waited for, so the statements stand alone and delay no change: when the disk
//! is full or the database is gone, gateways continue to report and their reports are kept in memory (`nodes`).

use std::collections::HashSet;

use chassis::sql::{Connection, Found, query, query_as, query_scalar};
use contract::feed::{NodeReport, Revision};
use contract::time::UnixMillis;

use super::log::{as_mark, of_mark, of_revision};
use super::rows::{self, Columns, ReadKey, Stored, Table};
use super::{Result, Store};

/// A process that was silent for this long is not waited for any more, in milliseconds.
pub(crate) const FORGOTTEN_AFTER: i64 = 24 * 3_600 * 1_000;

/// Maximum difference of two replicas' clocks when they order two processes, in milliseconds.
pub(crate) const CLOCKS_DIFFER_MILLIS: i64 = 5_000;

/// Maximum of processes on record with one credential. Beyond it, processes that are not waited for are deleted first,
/// then the newest.
pub(crate) const PROCESSES_OF_ONE_MAX: i64 = 128;

/// A process of a gateway as the database remembers it.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    /// Its last report, or one up to a minute older.
    pub(crate) report: NodeReport,
    pub(crate) first_seen: UnixMillis,
    /// Time of the last write of the row; the process may have reported for up to a minute longer.
    pub(crate) last_seen: UnixMillis,
}

impl Stored for Process {
    const KEY: ReadKey = |row| rows::key(Table::Processes, row.text("process"), row.text("gateway"));

    /// An unreadable process is waited for too: it counts as having applied no change and replaced no other process.
    fn read(row: &mut Columns<'_>) -> Option<Self> {
        let report = NodeReport {
            node: format!("{}/{}", row.text("gateway"), row.text("process")),
            place: Some(row.text("place")).filter(|place| !place.is_empty()),
            applied: Revision(row.get::<i64>("applied").unsigned_abs()),
            mark: row.get::<Option<i64>>("mark").map(as_mark),
            version: row.text("version"),
            goodbye: false,
            unserved: Vec::new(),
        };
        // An applied revision counts only with its mark.
        let report = if report.position().is_some() { report } else { report.of_nothing() };
        Some(Self { report, first_seen: row.time("first_seen_at"), last_seen: row.time("last_seen_at") })
    }
}

/// The names of the credential and of the process that a node's name consists of.
fn parts(node: &str) -> (&str, &str) {
    node.split_once('/').unwrap_or(("", node))
}

/// The common prefix of the names of all processes with this one's credential.
pub(super) fn credential_of(node: &str) -> &str {
    node.split_inclusive('/').next().unwrap_or_default()
}

impl Store {
    /// Processes with valid credentials that reported since a time.
    pub(crate) async fn processes_seen_since(&self, moment: UnixMillis) -> Result<Vec<Process>> {
        let found = query_as(
            "SELECT * FROM processes
             WHERE last_seen_at >= $1
               AND EXISTS
                   (SELECT 1 FROM credentials WHERE kind = 'gateway' AND name = processes.gateway AND revoked_at IS NULL)
             ORDER BY gateway, process",
        );
        let mut processes: Vec<Process> = rows::all(self.reader(), found.bind(moment.0)).await?;
        for process in &mut processes {
            // The query selected by time, so an earlier value here is damaged: the silence starts now.
            if process.last_seen < moment {
                process.last_seen = self.clock.now();
            }
        }
        Ok(processes)
    }

    /// Gateways with revoked credentials and no other.
    pub(crate) async fn revoked_gateways(&self) -> Result<HashSet<String>> {
        let found = query_as(
            "SELECT DISTINCT name FROM credentials WHERE kind = 'gateway' AND revoked_at IS NOT NULL AND NOT EXISTS
                 (SELECT 1 FROM credentials good
                  WHERE good.kind = 'gateway' AND good.name = credentials.name AND good.revoked_at IS NULL)",
        );
        let found: Vec<Found<(String,)>> = found.fetch_all(self.reader()).await?;
        Ok(found.into_iter().map(|found| found.row.0).collect())
    }

    /// When a process was seen last, of all that are on record.
    pub(crate) async fn last_seen(&self) -> Result<Option<UnixMillis>> {
        let last = query_scalar("SELECT MAX(CAST(last_seen_at AS BIGINT)) FROM processes");
        let last: Option<i64> = last.fetch_one(self.reader()).await?;
        Ok(last.map(UnixMillis))
    }

    /// Stores a process's report, unless its credential was revoked or another replica saw it later. A stored time more
    /// than an hour ahead is not later: it comes from a wrong clock, or is damage.
    pub(crate) async fn record_process(&self, process: &Process) -> Result<()> {
        let (gateway, name) = parts(&process.report.node);
        query(
            "INSERT INTO processes (gateway, process, place, version, applied, mark, first_seen_at, last_seen_at)
             SELECT $1, $2, $3, $4, $5, $6, $7, $8
             WHERE EXISTS (SELECT 1 FROM credentials WHERE kind = 'gateway' AND name = $1 AND revoked_at IS NULL)
             ON CONFLICT (gateway, process) DO UPDATE
             SET place = excluded.place, version = excluded.version, applied = excluded.applied, mark = excluded.mark,
                 first_seen_at = CAST(processes.first_seen_at AS BIGINT), last_seen_at = excluded.last_seen_at
             WHERE excluded.last_seen_at >= CAST(processes.last_seen_at AS BIGINT)
                 OR excluded.last_seen_at + 3600000 < CAST(processes.last_seen_at AS BIGINT)",
        )
        .bind((
            gateway,
            name,
            process.report.place.as_deref().unwrap_or_default(),
            &process.report.version,
            of_revision(process.report.applied),
            process.report.mark.map(of_mark),
            process.first_seen.0,
            process.last_seen.0,
        ))
        .execute(self.writer())
        .await?;
        query(
            "DELETE FROM processes WHERE gateway = $1 AND process NOT IN
             (SELECT process FROM processes AS earlier WHERE gateway = $1
              ORDER BY (last_seen_at < $3 OR EXISTS
                           (SELECT 1 FROM processes AS later
                            WHERE later.gateway = $1 AND later.place = earlier.place AND earlier.place <> ''
                              AND later.first_seen_at > earlier.first_seen_at
                              AND later.first_seen_at + $4 >= earlier.last_seen_at)),
                       first_seen_at, process
              LIMIT $2)",
        )
        .bind((gateway, PROCESSES_OF_ONE_MAX, process.last_seen.plus(-FORGOTTEN_AFTER).0, CLOCKS_DIFFER_MILLIS))
        .run(self.writer())
        .await
    }

    /// Deletes a process that said goodbye.
    pub(crate) async fn forget_process(&self, node: &str) -> Result<()> {
        let (gateway, name) = parts(node);
        let forget = query("DELETE FROM processes WHERE gateway = $1 AND process = $2").bind((gateway, name));
        forget.execute(self.writer()).await?;
        self.writer().unreadable().forget(&rows::key(Table::Processes, name, gateway));
        Ok(())
    }
}

/// Deletes the processes of a credential.
pub(crate) async fn forget_processes_of(connection: &mut Connection, gateway: &str) -> Result<()> {
    rows::forget_all(connection.unreadable(), Table::Processes, gateway);
    query("DELETE FROM processes WHERE gateway = $1").bind(gateway).run(connection).await
}

/// Deletes processes that last reported before a time; returns their names.
pub(crate) async fn forget_silent(connection: &mut Connection, before: UnixMillis) -> Result<Vec<String>> {
    let found = query_as("DELETE FROM processes WHERE last_seen_at < $1 RETURNING gateway, process");
    let gone: Vec<Found<(String, String)>> = found.bind(before.0).fetch_all(&mut *connection).await?;
    let names = gone.into_iter().map(|found| {
        let (gateway, process) = found.row;
        connection.unreadable().forget(&rows::key(Table::Processes, &process, &gateway));
        format!("{gateway}/{process}")
    });
    Ok(names.collect())
}
