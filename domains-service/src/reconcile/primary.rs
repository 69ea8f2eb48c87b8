//! The primary domain of a project: who becomes it, and who follows when it is removed or lost.

use serde_json::json;

use crate::actor::Actor;
use crate::domain::Domain;
use crate::project::ProjectRef;
use crate::publish;
use crate::store::{Result, Write, domains};

/// Makes the domain primary if it is wanted as primary, or is the project's first active domain.
pub(super) async fn become_if_wanted(write: &mut Write, domain: &mut Domain) -> Result<()> {
    if domain.primary || domain.redirect.is_some() {
        return Ok(());
    }
    if let Some(mut old) = domains::find_primary(write.connection(), &domain.project).await? {
        // An unreadable domain stays as it is.
        if !domain.primary_wanted || old.unreadable.is_some() {
            return Ok(());
        }
        old.primary = false;
        old.touch(write.now());
        domains::save_domain(write.connection(), &old).await?;
        publish::site(write, &old).await?;
    }
    domain.primary = true;
    domain.primary_wanted = false;
    record(write, domain).await
}

/// Gives a project without a primary domain a new one: of the served domains that do not redirect, the one that was
/// added first. Without such a domain the next that becomes active is it.
pub(super) async fn succeed(write: &mut Write, project: &ProjectRef) -> Result<()> {
    if domains::find_primary(write.connection(), project).await?.is_some() {
        return Ok(());
    }
    let Some(mut next) = domains::find_successor(write.connection(), project).await? else { return Ok(()) };
    next.primary = true;
    next.primary_wanted = false;
    next.touch(write.now());
    domains::save_domain(write.connection(), &next).await?;
    publish::site_and_dependants(write, &next).await?;
    record(write, &next).await
}

async fn record(write: &mut Write, domain: &Domain) -> Result<()> {
    let detail = json!({ "primary": domain.name });
    write.record(&domain.project, Some(&domain.name), "domain.primary_changed", &Actor::system(), detail).await
}
