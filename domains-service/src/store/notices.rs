//! Notifications between replicas over one PostgreSQL, through the database. Over SQLite there is one process.

use chassis::sql::{Connection, Kind, query};
use contract::feed::Revision;
use sqlx::postgres::PgListener;

use super::{Store, StoreError};

/// The channel of committed revisions.
const CHANGES: &str = "tollhouse_changes";

/// The channel of gateways' reports.
const REPORTS: &str = "tollhouse_reports";

/// What a replica was told.
pub(crate) enum Notice {
    /// Another replica has committed this revision.
    Committed(Revision),
    /// The text of [`Store::tell_replicas`].
    Report(String),
}

/// What the other replicas tell, from now on.
pub(crate) struct Notices(PgListener);

impl Notices {
    /// The next notice; `None` when the connection was lost. What reads as neither is skipped.
    pub(crate) async fn next(&mut self) -> Result<Option<Notice>, StoreError> {
        loop {
            let Some(heard) = self.0.try_recv().await? else { return Ok(None) };
            if heard.channel() == REPORTS {
                return Ok(Some(Notice::Report(heard.payload().to_owned())));
            }
            if let Ok(revision) = heard.payload().parse() {
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

    /// Begins to listen to the other replicas; `None` where there are none.
    pub(crate) async fn notices(&self) -> Result<Option<Notices>, StoreError> {
        let Some(pool) = self.reader().postgres() else { return Ok(None) };
        let mut listener = PgListener::connect_with(pool).await?;
        listener.listen_all([CHANGES, REPORTS]).await?;
        Ok(Some(Notices(listener)))
    }

    /// Tells the other replicas of a gateway's report.
    pub(crate) async fn tell_replicas(&self, report: &str) -> Result<(), StoreError> {
        query("SELECT pg_notify($1, $2)").bind(REPORTS).bind(report).execute(self.reader()).await?;
        Ok(())
    }
}

/// Tells the other replicas of a revision, if and when the transaction commits.
pub(super) async fn committed(transaction: &mut Connection, revision: i64) -> Result<(), StoreError> {
    if transaction.kind() == Kind::Postgres {
        query("SELECT pg_notify($1, $2)").bind(CHANGES).bind(revision.to_string()).execute(transaction).await?;
    }
    Ok(())
}
