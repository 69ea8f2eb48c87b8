//! Projects at rest.

use chassis::sql::{Connection, query, query_as};
use contract::hostname::Hostname;
use contract::plan::{Limits, Plan};
use contract::project::{Access, Project, ProjectId, UpstreamName};
use contract::time::UnixMillis;

use super::{Store, StoreError, read_word};
use crate::plans::Plans;

/// A project's record.
#[derive(Clone, Debug)]
pub(crate) struct ProjectRecord {
    pub(crate) id: ProjectId,
    /// Random text that no other project ever has, not even a later one of the same id: what its CNAME target and
    /// ownership proofs derive from.
    pub(crate) salt: String,
    pub(crate) plan: Plan,
    /// The project's own limits, in place of the plan's.
    pub(crate) limits: Option<Limits>,
    pub(crate) access: Access,
    pub(crate) upstream: UpstreamName,
    pub(crate) suspended: bool,
    pub(crate) created_at: UnixMillis,
    pub(crate) updated_at: UnixMillis,
    /// The last successful deploy.
    pub(crate) deployed_at: Option<UnixMillis>,
    /// Since when a plan without custom domains is in force while there are some.
    pub(crate) unpaid_since: Option<UnixMillis>,
}

impl ProjectRecord {
    /// What the edge must know.
    pub(crate) fn published(&self, plans: &Plans) -> Project {
        Project {
            id: self.id.clone(),
            plan: self.plan,
            limits: self.limits.unwrap_or_else(|| plans.of(self.plan).limits),
            access: self.access,
            upstream: self.upstream.clone(),
            suspended: self.suspended,
        }
    }

    /// Where the project is served by default.
    pub(crate) fn host(&self, platform: &Hostname) -> Option<Hostname> {
        platform.child(self.id.as_str()).ok()
    }
}

chassis::record! {
    struct Row {
        id: String,
        salt: String,
        plan: String,
        per_minute: Option<i64>,
        per_day: Option<i64>,
        access: String,
        upstream: String,
        suspended: bool,
        created_at: i64,
        updated_at: i64,
        deployed_at: Option<i64>,
        unpaid_since: Option<i64>,
    }
}

impl TryFrom<Row> for ProjectRecord {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let limits = match (row.per_minute, row.per_day) {
            (Some(minute), Some(day)) => {
                let limits = u32::try_from(minute).ok().zip(u32::try_from(day).ok());
                Some(limits.and_then(|(minute, day)| Limits::new(minute, day)).ok_or(StoreError::Damaged("limit"))?)
            }
            _ => None,
        };
        Ok(Self {
            id: read_word(&row.id, "project id")?,
            salt: row.salt,
            plan: read_word(&row.plan, "plan")?,
            limits,
            access: read_word(&row.access, "access")?,
            upstream: read_word(&row.upstream, "upstream")?,
            suspended: row.suspended,
            created_at: UnixMillis(row.created_at),
            updated_at: UnixMillis(row.updated_at),
            deployed_at: row.deployed_at.map(UnixMillis),
            unpaid_since: row.unpaid_since.map(UnixMillis),
        })
    }
}

impl Store {
    /// The project with this id.
    pub(crate) async fn find_project(&self, id: &ProjectId) -> Result<Option<ProjectRecord>, StoreError> {
        let mut connection = self.reader().acquire().await?;
        find_project(&mut connection, id).await
    }

    /// How many projects and keys there are.
    pub(crate) async fn count_projects_and_keys(&self) -> Result<(i64, i64), StoreError> {
        Ok(query_as("SELECT (SELECT COUNT(*) FROM projects), (SELECT COUNT(*) FROM api_keys WHERE revoked_at IS NULL)")
            .fetch_one(self.reader())
            .await?)
    }

    /// Up to `limit` projects after `after`, by id.
    pub(crate) async fn projects(&self, after: &str, limit: i64) -> Result<Vec<ProjectRecord>, StoreError> {
        let rows: Vec<Row> = query_as("SELECT * FROM projects WHERE id > $1 ORDER BY id LIMIT $2")
            .bind(after)
            .bind(limit)
            .fetch_all(self.reader())
            .await?;
        rows.into_iter().map(ProjectRecord::try_from).collect()
    }
}

/// The project with this id, within a transaction.
pub(crate) async fn find_project(
    connection: &mut Connection,
    id: &ProjectId,
) -> Result<Option<ProjectRecord>, StoreError> {
    let row: Option<Row> =
        query_as("SELECT * FROM projects WHERE id = $1").bind(id.as_str()).fetch_optional(connection).await?;
    row.map(ProjectRecord::try_from).transpose()
}

/// Writes a project, new or changed.
pub(crate) async fn save_project(connection: &mut Connection, project: &ProjectRecord) -> Result<(), StoreError> {
    query(
        "INSERT INTO projects (id, salt, plan, per_minute, per_day, access, upstream, suspended, created_at, updated_at,
                               deployed_at, unpaid_since)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
         ON CONFLICT (id) DO UPDATE SET plan = excluded.plan, per_minute = excluded.per_minute,
             per_day = excluded.per_day, access = excluded.access, upstream = excluded.upstream,
             suspended = excluded.suspended, updated_at = excluded.updated_at, deployed_at = excluded.deployed_at,
             unpaid_since = excluded.unpaid_since",
    )
    .bind(project.id.as_str())
    .bind(&project.salt)
    .bind(project.plan.as_str())
    .bind(project.limits.map(|limits| i64::from(limits.per_minute.get())))
    .bind(project.limits.map(|limits| i64::from(limits.per_day.get())))
    .bind(project.access.as_str())
    .bind(project.upstream.as_str())
    .bind(project.suspended)
    .bind(project.created_at.0)
    .bind(project.updated_at.0)
    .bind(project.deployed_at.map(|at| at.0))
    .bind(project.unpaid_since.map(|at| at.0))
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes a project's row. Its keys and domains must be gone.
pub(crate) async fn delete_project(connection: &mut Connection, id: &ProjectId) -> Result<(), StoreError> {
    query("DELETE FROM projects WHERE id = $1").bind(id.as_str()).execute(connection).await?;
    Ok(())
}
