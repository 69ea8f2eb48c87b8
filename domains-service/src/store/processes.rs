//! Processes of gateways on record.
//!
//! What is written here says only who is waited for, so the statements stand alone and hold up no change: when the disk is
//! full or the database is gone, gateways go on reporting and what they say is kept in memory (`nodes`).

use chassis::sql::{Connection, query, query_as, query_scalar};
use contract::feed::{NodeReport, Revision};
use contract::time::UnixMillis;

use super::{Store, StoreError};

/// Processes on record of one credential: of more, the longest silent is forgotten.
pub(crate) const PROCESSES_OF_ONE_MAX: i64 = 128;

chassis::record! {
    /// The row of a process.
    #[derive(Clone, Debug)]
    struct Row {
        gateway: String,
        process: String,
        place: String,
        version: String,
        applied: i64,
        first_heard_at: i64,
        last_heard_at: i64,
    }
}

/// A process of a gateway as the database remembers it.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    /// What it reported last, or up to a minute before that.
    pub(crate) report: NodeReport,
    pub(crate) first_heard: UnixMillis,
    /// When the row was written last; it was heard up to a minute longer.
    pub(crate) last_heard: UnixMillis,
}

impl From<Row> for Process {
    fn from(row: Row) -> Self {
        let report = NodeReport {
            node: format!("{}/{}", row.gateway, row.process),
            place: Some(row.place).filter(|place| !place.is_empty()),
            applied: Revision(row.applied.unsigned_abs()),
            version: row.version,
            goodbye: false,
        };
        Self { report, first_heard: UnixMillis(row.first_heard_at), last_heard: UnixMillis(row.last_heard_at) }
    }
}

/// The names of the credential and of the process that a node's name consists of.
fn parts(node: &str) -> (&str, &str) {
    node.split_once('/').unwrap_or(("", node))
}

impl Store {
    /// The processes that were heard since a moment and whose credentials are good.
    pub(crate) async fn processes_heard_since(&self, moment: UnixMillis) -> Result<Vec<Process>, StoreError> {
        let found = query_as(
            "SELECT * FROM processes
             WHERE last_heard_at >= $1
               AND EXISTS
                   (SELECT 1 FROM gateways WHERE gateways.name = processes.gateway AND gateways.revoked_at IS NULL)
             ORDER BY gateway, process",
        );
        let rows: Vec<Row> = found.bind(moment.0).fetch_all(self.reader()).await?;
        Ok(rows.into_iter().map(Process::from).collect())
    }

    /// Writes down that a process was heard; nothing, if its credential was revoked meanwhile.
    pub(crate) async fn note_process(&self, process: &Process) -> Result<(), StoreError> {
        let (gateway, name) = parts(&process.report.node);
        query(
            "INSERT INTO processes (gateway, process, place, version, applied, first_heard_at, last_heard_at)
             SELECT $1, $2, $3, $4, $5, $6, $7
             WHERE EXISTS (SELECT 1 FROM gateways WHERE name = $1 AND revoked_at IS NULL)
             ON CONFLICT (gateway, process) DO UPDATE
             SET place = excluded.place, version = excluded.version, applied = excluded.applied,
                 last_heard_at = excluded.last_heard_at
             WHERE excluded.last_heard_at >= processes.last_heard_at",
        )
        .bind(gateway)
        .bind(name)
        .bind(process.report.place.as_deref().unwrap_or_default())
        .bind(&process.report.version)
        .bind(i64::try_from(process.report.applied.0).unwrap_or(i64::MAX))
        .bind(process.first_heard.0)
        .bind(process.last_heard.0)
        .execute(self.writer())
        .await?;
        query(
            "DELETE FROM processes WHERE gateway = $1 AND process NOT IN
             (SELECT process FROM processes WHERE gateway = $1 ORDER BY last_heard_at DESC, process LIMIT $2)",
        )
        .bind(gateway)
        .bind(PROCESSES_OF_ONE_MAX)
        .execute(self.writer())
        .await?;
        Ok(())
    }

    /// Forgets a process that said goodbye.
    pub(crate) async fn forget_process(&self, node: &str) -> Result<(), StoreError> {
        let (gateway, name) = parts(node);
        let forget = query("DELETE FROM processes WHERE gateway = $1 AND process = $2").bind(gateway).bind(name);
        forget.execute(self.writer()).await?;
        Ok(())
    }
}

/// Forgets the processes of a credential.
pub(crate) async fn forget_processes_of(connection: &mut Connection, gateway: &str) -> Result<(), StoreError> {
    query("DELETE FROM processes WHERE gateway = $1").bind(gateway).execute(connection).await?;
    Ok(())
}

/// Forgets processes that were heard last before a moment; their names.
pub(crate) async fn forget_silent(connection: &mut Connection, before: UnixMillis) -> Result<Vec<String>, StoreError> {
    let found = query_scalar("DELETE FROM processes WHERE last_heard_at < $1 RETURNING gateway || '/' || process");
    Ok(found.bind(before.0).fetch_all(connection).await?)
}
