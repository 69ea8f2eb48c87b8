//! Notifications between replicas over one PostgreSQL, through the database. Over SQLite there is one process.

use chassis::sql::{Connection, Kind, query};
use contract::feed::Revision;
use sqlx::postgres::PgListener;

use super::{Result, Store};

/// The channel of committed revisions.
const CHANGES: &str = "tollhouse_changes";

/// The channel of gateways' reports.
const REPORTS: &str = "tollhouse_reports";

/// A notification from another replica.
pub(crate) enum Notice {
    /// Another replica has committed this revision.
    Committed(Revision),
    /// The text of [`Store::notify_replicas`].
    Report(String),
}

/// Notifications of the other replicas, from now on.
pub(crate) struct Notices(PgListener);

impl Notices {
    /// The next notification; `None` when the connection was lost. Skips malformed ones.
    pub(crate) async fn next(&mut self) -> Result<Option<Notice>> {
        loop {
            let Some(received) = self.0.try_recv().await? else { return Ok(None) };
            if received.channel() == REPORTS {
                return Ok(Some(Notice::Report(received.payload().to_owned())));
            }
            if let Ok(revision) = received.payload().parse() {
                return Ok(Some(Notice::Committed(Revision(revision))));
            }
        }
    }
}

impl Store {
    /// Whether other replicas may share the database.
    pub(crate) fn is_shared(&self) -> bool {
        self.reader().kind() == Kind::Postgres
    }

    /// Listens to the other replicas; `None` over SQLite.
    pub(crate) async fn notices(&self) -> Result<Option<Notices>> {
        let Some(pool) = self.reader().postgres() else { return Ok(None) };
        let mut listener = PgListener::connect_with(pool).await?;
        listener.listen_all([CHANGES, REPORTS]).await?;
        Ok(Some(Notices(listener)))
    }

    /// Sends a gateway's report to the other replicas.
    pub(crate) async fn notify_replicas(&self, report: &str) -> Result<()> {
        query("SELECT pg_notify($1, $2)").bind((REPORTS, report)).run(self.reader()).await
    }
}

/// Sends a revision to the other replicas when the transaction commits.
pub(super) async fn committed(transaction: &mut Connection, revision: i64) -> Result<()> {
    if transaction.kind() == Kind::Postgres {
        query("SELECT pg_notify($1, $2)").bind((CHANGES, revision.to_string())).execute(transaction).await?;
    }
    Ok(())
}
