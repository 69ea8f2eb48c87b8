//! Projects that are erased here, until every other service has erased them as well.

use chassis::sql::{Connection, query, query_as};
use contract::project::ProjectUid;
use contract::time::UnixMillis;

use super::super::rows::{self, Columns, ReadKey, Stored, Table};
use super::super::{Result, Store};

/// A project that other services must erase.
impl Stored for ProjectUid {
    const KEY: ReadKey = |row| rows::key(Table::Erasures, row.text("project"), "");

    fn read(row: &mut Columns<'_>) -> Option<Self> {
        row.word("project")
    }
}

impl Store {
    /// Projects that are erased here and not yet by this service, the oldest first.
    pub(crate) async fn erasures(&self, service: &str, limit: i64) -> Result<Vec<ProjectUid>> {
        let rows = query_as(
            "SELECT project FROM erasures WHERE NOT EXISTS
                 (SELECT 1 FROM erased_by b WHERE b.project = erasures.project AND b.service = $2)
             ORDER BY erased_at, project LIMIT $1",
        );
        rows::all(self.reader(), rows.bind((limit, service))).await
    }
}

/// A service has erased the project, too.
pub(crate) async fn record_erased(connection: &mut Connection, uid: &ProjectUid, service: &str) -> Result<()> {
    let insert = query(
        "INSERT INTO erased_by (project, service) SELECT project, $2 FROM erasures WHERE project = $1
         ON CONFLICT DO NOTHING",
    );
    insert.bind((uid.as_str(), service)).run(connection).await
}

/// Ends erasures that every service on record has carried out. Without any service on record, ends those from before
/// `before`.
pub(crate) async fn end_erasures(connection: &mut Connection, before: UnixMillis) -> Result<()> {
    let delete = query(
        "DELETE FROM erasures
         WHERE EXISTS (SELECT 1 FROM erased_by b WHERE b.project = erasures.project)
             AND NOT EXISTS (SELECT 1 FROM credentials s WHERE s.kind = 'service' AND s.revoked_at IS NULL AND NOT EXISTS
                 (SELECT 1 FROM erased_by b WHERE b.project = erasures.project AND b.service = s.name))
             OR erased_at < $1
             AND NOT EXISTS (SELECT 1 FROM credentials s WHERE s.kind = 'service' AND s.revoked_at IS NULL)",
    );
    delete.bind(before.0).execute(&mut *connection).await?;
    query("DELETE FROM erased_by WHERE project NOT IN (SELECT project FROM erasures)").run(connection).await
}
