//! Repairs damaged identities of projects from the data that was published to the edge.
//!
//! Without its identity, its name or its state a project is not found, so neither its keys nor its domains could be
//! withdrawn. The edge has identity and name of every present project, and of no other.

use chassis::sql::{Connection, Found, query, query_as};
use contract::feed::Entity;
use contract::project::{Project, ProjectId, ProjectUid};

use super::super::rows::{self, Table};
use super::super::{Result, Store};

/// Published projects without a present project of this name and identity: of all names, or of one.
macro_rules! lost {
    ($which:literal) => {
        concat!(
            "SELECT kind, name, body FROM entities WHERE kind = 'project' AND ",
            $which,
            " AND NOT EXISTS
                 (SELECT 1 FROM projects WHERE projects.name = entities.name AND removed_at IS NULL
                  AND entities.body LIKE '%\"' || projects.id || '\"%')
             ORDER BY name LIMIT 100"
        )
    };
}

impl Store {
    /// Repairs identity, name and state of published projects that are not found: of the one with this name, or of 100.
    /// Returns whether there was one.
    pub(crate) async fn repair_projects(&self, name: Option<&ProjectId>) -> Result<bool> {
        if lost(&mut self.reader().acquire().await?, name).await?.is_empty() {
            return Ok(false);
        }
        let (mut write, mut is_repaired) = (self.write().await?, false);
        for project in lost(write.connection(), name).await? {
            is_repaired |= repair(write.connection(), &project).await?;
        }
        write.commit().await?;
        Ok(is_repaired)
    }
}

async fn lost(connection: &mut Connection, name: Option<&ProjectId>) -> Result<Vec<Project>> {
    let found = match name {
        None => query_as(lost!("name <> ''")),
        Some(name) => query_as(lost!("name = $1")).bind(name.as_str()),
    };
    let project = |entity| if let Entity::Project(project) = entity { Some(project) } else { None };
    Ok(rows::all(connection, found).await?.into_iter().filter_map(project).collect())
}

/// Repairs a project's row: the one with its identity, or the one with its name and an unreadable identity.
async fn repair(connection: &mut Connection, project: &Project) -> Result<bool> {
    let (uid, name) = (project.uid.as_str(), project.id.as_str());
    let named = query_as("SELECT id FROM projects WHERE name = $1 AND removed_at IS NULL");
    let named: Option<Found<(String,)>> = named.bind(name).fetch_optional(&mut *connection).await?;
    let rows = match &named {
        None => {
            let presence =
                "UPDATE projects SET name = $2, removed_at = NULL, erase_at = NULL, kept_domains = NULL WHERE id = $1";
            query(presence).bind((uid, name)).execute(&mut *connection).await?
        }
        Some(found) if found.row.0.parse::<ProjectUid>().is_err() => {
            let identity = "UPDATE projects SET id = $1 WHERE name = $2 AND removed_at IS NULL";
            query(identity).bind((uid, name)).execute(&mut *connection).await?
        }
        // The row belongs to another project, and the published entity is damaged.
        Some(_) => return Ok(false),
    };
    let is_repaired = rows.rows_affected() > 0;
    if is_repaired {
        tracing::error!(
            project.id = name,
            project.uid = uid,
            "repaired the identity, name or state of a project's row from the change log. Another program wrote to the \
             database, or its disk is damaged: check both"
        );
        connection.unreadable().forget(&rows::key(Table::Projects, uid, ""));
        if let Some(found) = named {
            connection.unreadable().forget(&rows::key(Table::Projects, found.row.0, ""));
        }
    }
    Ok(is_repaired)
}
