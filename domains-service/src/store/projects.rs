//! Stored projects: present ones, and removed ones that can still be restored.

mod erasures;
mod repaired;

use chassis::sql::{Connection, On, query, query_as};
use contract::browsers::Browsers;
use contract::hostname::Hostname;
use contract::plan::{Limits, Plan};
use contract::project::{Access, Project, ProjectId, ProjectUid, UpstreamName};
use contract::time::UnixMillis;

pub(crate) use self::erasures::{end_erasures, record_erased};
use super::rows::{self, Columns, ReadKey, Stored, Table};
use super::{Result, Store, StoreError, log, to_json};
use crate::domain::kept::KeptDomain;
use crate::domain::proof::{ProofKey, ProofSource};
use crate::plans::Plans;
use crate::project::ProjectRef;

/// Removed projects listed at once.
const REMOVED_LISTED_MAX: i64 = 1_000;

/// A project's record.
#[derive(Clone, Debug)]
pub(crate) struct ProjectRecord {
    pub(crate) id: ProjectRef,
    /// Random text, unique to this project: the lineage by which a released name remembers its former holder.
    pub(crate) salt: String,
    /// The key from which its CNAME target and ownership texts derive, together with the salt.
    pub(crate) proof_key: ProofKey,
    pub(crate) plan: Plan,
    /// The project's own limits, in place of the plan's.
    pub(crate) limits: Option<Limits>,
    pub(crate) access: Access,
    pub(crate) upstream: UpstreamName,
    pub(crate) suspended: bool,
    /// CORS and HSTS settings that override the upstream's answers.
    pub(crate) browsers: Browsers,
    pub(crate) created_at: UnixMillis,
    pub(crate) updated_at: UnixMillis,
    /// The last successful deploy.
    pub(crate) deployed_at: Option<UnixMillis>,
    /// Since when a plan without custom domains is in force while there are some.
    pub(crate) unpaid_since: Option<UnixMillis>,
    /// Set while the project is removed and kept.
    pub(crate) removed: Option<Removed>,
    /// The first unreadable column of its row, if any. Such a project is listed and can be removed, and nothing else.
    pub(crate) unreadable: Option<&'static str>,
}

/// Data of a removed project that can be restored.
#[derive(Clone, Debug)]
pub(crate) struct Removed {
    pub(crate) at: UnixMillis,
    /// The time of its erasure.
    pub(crate) erase_at: UnixMillis,
    /// The domains it had.
    pub(crate) domains: Vec<KeptDomain>,
}

impl ProjectRecord {
    /// The project as published to the edge.
    pub(crate) fn published(&self, plans: &Plans) -> Project {
        Project {
            id: self.id.name.clone(),
            uid: self.id.uid.clone(),
            plan: self.plan,
            limits: self.limits.unwrap_or_else(|| plans.of(self.plan).limits),
            access: self.access,
            upstream: self.upstream.clone(),
            suspended: self.suspended,
            browsers: self.browsers.clone(),
        }
    }

    /// The inputs of its proofs.
    pub(crate) fn proof(&self) -> ProofSource<'_> {
        ProofSource { key: &self.proof_key, salt: &self.salt }
    }

    /// Where the project is served by default.
    pub(crate) fn host(&self, platform: &Hostname) -> Option<Hostname> {
        platform.child(self.id.name.as_str()).ok()
    }
}

impl Stored for ProjectRecord {
    const KEY: ReadKey = |row| rows::key(Table::Projects, row.text("id"), "");

    fn read(row: &mut Columns<'_>) -> Option<Self> {
        let proof_key = ProofKey::read(&row.text("proof_key"));
        if proof_key.is_none() {
            row.bad("proof_key", "invalid key");
        }
        let (removed_at, erase_at) = (row.time_if_any("removed_at"), row.time_if_any("erase_at"));
        let domains: Option<Vec<KeptDomain>> = row.json("kept_domains");
        let removed = removed_at.zip(erase_at);
        let removed = removed.map(|(at, erase_at)| Removed { at, erase_at, domains: domains.unwrap_or_default() });
        Some(Self {
            id: row.project("id", "name")?,
            salt: row.text("salt"),
            proof_key: proof_key.unwrap_or_else(|| ProofKey::new(Vec::new())),
            plan: row.word("plan").unwrap_or(Plan::Free),
            limits: limits(row),
            access: row.word("access").unwrap_or(Access::Key),
            // The contract names every upstream; any value will do for a record that is not used.
            upstream: row.word("upstream").or_else(|| "orders".parse().ok())?,
            suspended: row.get("suspended"),
            browsers: row.json("browsers").unwrap_or_default(),
            created_at: row.time("created_at"),
            updated_at: row.time("updated_at"),
            deployed_at: row.time_if_any("deployed_at"),
            unpaid_since: row.time_if_any("unpaid_since"),
            removed,
            unreadable: row.unreadable(),
        })
    }
}

fn limits(row: &mut Columns<'_>) -> Option<Limits> {
    let (minute, day): (Option<i64>, Option<i64>) = (row.get("per_minute"), row.get("per_day"));
    let (minute, day) = minute.zip(day)?;
    let limits = u32::try_from(minute).ok().zip(u32::try_from(day).ok());
    let limits = limits.and_then(|(minute, day)| Limits::new(minute, day));
    if limits.is_none() {
        row.bad("per_minute", format!("{minute} a minute and {day} a day are invalid limits"));
    }
    limits
}

impl Store {
    /// The project of this name. A project that is not found because its row is damaged is repaired first, so that its
    /// keys and domains can be withdrawn.
    pub(crate) async fn project_named(&self, name: &ProjectId) -> Result<Option<ProjectRef>> {
        let find = async || find_named(self.reader(), name).await;
        let found = match find().await {
            Ok(None) | Err(StoreError::Unreadable { .. }) if self.repair_projects(Some(name)).await? => find().await,
            found => found,
        };
        Ok(found?.map(|project| project.id))
    }

    /// Removed projects that can be restored, the one removed last first.
    pub(crate) async fn removed_projects(&self) -> Result<Vec<ProjectRecord>> {
        let rows =
            query_as("SELECT * FROM projects WHERE removed_at IS NOT NULL ORDER BY removed_at DESC, id LIMIT $1");
        rows::all(self.reader(), rows.bind(REMOVED_LISTED_MAX)).await
    }

    /// How many projects and keys there are.
    pub(crate) async fn count_projects_and_keys(&self) -> Result<(i64, i64)> {
        Ok(query_as(
            "SELECT (SELECT COUNT(*) FROM projects WHERE removed_at IS NULL),
                (SELECT COUNT(*) FROM api_keys k JOIN projects p ON p.id = k.project
                 WHERE k.revoked_at IS NULL AND p.removed_at IS NULL)",
        )
        .fetch_one(self.reader())
        .await?)
    }

    /// Up to `limit` projects after `after`, by name.
    pub(crate) async fn projects(&self, after: &str, limit: i64) -> Result<Vec<ProjectRecord>> {
        let rows = query_as("SELECT * FROM projects WHERE name > $1 AND removed_at IS NULL ORDER BY name LIMIT $2");
        rows::all(self.reader(), rows.bind((after, limit))).await
    }
}

/// The project, unless it is removed.
pub(crate) async fn find_project(on: impl Into<On<'_>>, id: &ProjectRef) -> Result<Option<ProjectRecord>> {
    find_by_uid(on, &id.uid).await
}

/// The same by identity.
pub(crate) async fn find_by_uid(on: impl Into<On<'_>>, uid: &ProjectUid) -> Result<Option<ProjectRecord>> {
    let project = read_project(on, uid).await?;
    let unreadable = project.as_ref().and_then(|project| project.unreadable);
    rows::must_be_whole(unreadable, || rows::key(Table::Projects, uid.as_str(), ""))?;
    Ok(project)
}

/// The project's identity and name at present, also where the rest of its row cannot be read.
pub(crate) async fn find_ref(connection: &mut Connection, uid: &ProjectUid) -> Result<Option<ProjectRef>> {
    Ok(read_project(connection, uid).await?.map(|project| project.id))
}

async fn read_project(on: impl Into<On<'_>>, uid: &ProjectUid) -> Result<Option<ProjectRecord>> {
    let row = query_as("SELECT * FROM projects WHERE id = $1 AND removed_at IS NULL").bind(uid.as_str());
    rows::one(on, row).await
}

/// The project of this name, also with an unreadable row.
pub(crate) async fn find_named(on: impl Into<On<'_>>, name: &ProjectId) -> Result<Option<ProjectRecord>> {
    let row = query_as("SELECT * FROM projects WHERE name = $1 AND removed_at IS NULL").bind(name.as_str());
    rows::one(on, row).await
}

/// Removed projects that had this name, the one removed last first.
pub(crate) async fn find_removed(connection: &mut Connection, name: &ProjectId) -> Result<Vec<ProjectRecord>> {
    let rows =
        query_as("SELECT * FROM projects WHERE name = $1 AND removed_at IS NOT NULL ORDER BY removed_at DESC, id");
    rows::all(connection, rows.bind(name.as_str())).await
}

/// Removed projects after their restore period, at most `limit`.
pub(crate) async fn to_erase(connection: &mut Connection, now: UnixMillis, limit: i64) -> Result<Vec<ProjectRecord>> {
    let rows = query_as("SELECT * FROM projects WHERE erase_at <= $1 ORDER BY erase_at LIMIT $2").bind((now.0, limit));
    rows::all(connection, rows).await
}

/// Stores the removal of a project. Writes no other column, so an unreadable row stays as it is.
pub(crate) async fn save_removal(connection: &mut Connection, project: &ProjectRecord) -> Result<()> {
    query("UPDATE projects SET removed_at = $1, erase_at = $2, kept_domains = $3, updated_at = $4 WHERE id = $5")
        .bind((
            project.removed.as_ref().map(|removed| removed.at.0),
            project.removed.as_ref().map(|removed| removed.erase_at.0),
            project.removed.as_ref().map(|removed| to_json(&removed.domains)),
            project.updated_at.0,
            project.id.uid.as_str(),
        ))
        .run(connection)
        .await
}

/// Writes a project, new or changed.
///
/// # Errors
/// Also when its row could not be read: what is in it would be lost.
pub(crate) async fn save_project(connection: &mut Connection, project: &ProjectRecord) -> Result<()> {
    rows::must_be_whole(project.unreadable, || rows::key(Table::Projects, project.id.uid.as_str(), ""))?;
    let removed = project.removed.as_ref();
    let values = [
        ("id", project.id.uid.as_str().into()),
        ("name", project.id.name.as_str().into()),
        ("salt", (&project.salt).into()),
        ("proof_key", project.proof_key.to_text().into()),
        ("plan", project.plan.as_str().into()),
        ("per_minute", project.limits.map(|limits| i64::from(limits.per_minute.get())).into()),
        ("per_day", project.limits.map(|limits| i64::from(limits.per_day.get())).into()),
        ("access", project.access.as_str().into()),
        ("upstream", project.upstream.as_str().into()),
        ("suspended", project.suspended.into()),
        ("browsers", (!project.browsers.is_unsaid()).then(|| to_json(&project.browsers)).into()),
        ("created_at", project.created_at.0.into()),
        ("updated_at", project.updated_at.0.into()),
        ("deployed_at", project.deployed_at.map(|at| at.0).into()),
        ("unpaid_since", project.unpaid_since.map(|at| at.0).into()),
        ("removed_at", removed.map(|removed| removed.at.0).into()),
        ("erase_at", removed.map(|removed| removed.erase_at.0).into()),
        ("kept_domains", removed.map(|removed| to_json(&removed.domains)).into()),
    ];
    let once = ["name", "salt", "proof_key", "created_at"];
    rows::upsert(Table::Projects, &["id"], &once, values).run(connection).await
}

/// Ends all sessions of the project's keys in the dashboard.
pub(crate) async fn end_sessions(connection: &mut Connection, id: &ProjectRef) -> Result<()> {
    query("DELETE FROM dashboard_sessions WHERE project = $1").bind(id.uid.as_str()).run(connection).await
}

/// Erases a removed project with all its data, and records that other services must do the same.
pub(crate) async fn erase(connection: &mut Connection, id: &ProjectRef, now: UnixMillis) -> Result<()> {
    rows::forget_project(connection.unreadable(), id.uid.as_str());
    // Deliveries go with their endpoints.
    for statement in [
        "DELETE FROM dashboard_sessions WHERE project = $1",
        "DELETE FROM kept_rows WHERE owner IN (SELECT 'deliveries ' || id FROM webhook_endpoints WHERE project = $1)
             OR owner IN (SELECT 'waiting ' || id FROM webhook_endpoints WHERE project = $1)",
        "DELETE FROM webhook_endpoints WHERE project = $1",
        "DELETE FROM domains WHERE project = $1",
        "DELETE FROM holders WHERE project = $1",
        "DELETE FROM api_keys WHERE project = $1",
        "DELETE FROM events WHERE project = $1",
        "DELETE FROM kept_rows WHERE owner = 'events ' || $1",
        "DELETE FROM usage_days WHERE project = $1",
        "DELETE FROM projects WHERE id = $1",
    ] {
        query(statement).bind(id.uid.as_str()).execute(&mut *connection).await?;
    }
    let erasure = query("INSERT INTO erasures (project, erased_at) VALUES ($1, $2) ON CONFLICT (project) DO NOTHING");
    erasure.bind((id.uid.as_str(), now.0)).execute(&mut *connection).await?;
    log::erase_earlier(connection, now).await
}
