//! The primary domain of a project, and the domains that redirect.

use chassis::sql::{Connection, query_as};
use contract::hostname::Hostname;

use super::super::{Result, rows, with_project};
use crate::domain::Domain;
use crate::project::ProjectRef;

/// The project's primary domain.
pub(crate) async fn find_primary(connection: &mut Connection, project: &ProjectRef) -> Result<Option<Domain>> {
    let row = query_as(with_project!("domains WHERE project = $1 AND is_primary")).bind(project.uid.as_str());
    rows::one(connection, row).await
}

/// The domain that follows a primary one that is gone.
pub(crate) async fn find_successor(connection: &mut Connection, project: &ProjectRef) -> Result<Option<Domain>> {
    let found = query_as(with_project!(
        "domains WHERE project = $1 AND redirect_to IS NULL AND removal IS NULL AND status IN ('active', 'degraded')
         ORDER BY CAST(created_at AS BIGINT), name LIMIT 1"
    ))
    .bind(project.uid.as_str());
    Ok(rows::readable(connection, found).await?.filter(|domain: &Domain| domain.unreadable.is_none()))
}

/// The domain that becomes the primary one when it is active, in a project without a primary one: the one that is
/// wanted as primary, else one that does not redirect.
pub(crate) async fn find_next_primary(
    connection: &mut Connection,
    project: &ProjectRef,
    besides: &Hostname,
) -> Result<Option<Domain>> {
    let found = query_as(with_project!(
        "domains WHERE project = $1 AND name <> $2 AND redirect_to IS NULL AND removal IS NULL
             AND status NOT IN ('active', 'degraded')
         ORDER BY primary_wanted DESC, CAST(created_at AS BIGINT), name LIMIT 1"
    ))
    .bind((project.uid.as_str(), besides.as_str()));
    Ok(rows::readable(connection, found).await?.filter(|domain: &Domain| domain.unreadable.is_none()))
}

/// Domains of the project that redirect to this one: by its name, or as the primary one when it is (or was) that.
pub(crate) async fn dependants(connection: &mut Connection, target: &Domain, is_primary: bool) -> Result<Vec<Domain>> {
    let as_primary = if is_primary { "primary" } else { target.name.as_str() };
    let found = query_as(with_project!(
        "domains WHERE project = $1 AND (redirect_to = $2 OR redirect_to = $3) AND removal IS NULL
         ORDER BY name"
    ));
    rows::all(connection, found.bind((target.project.uid.as_str(), target.name.as_str(), as_primary))).await
}
