//! Publishes a domain's site to the edge, and withdraws the sites of a domain or project.
//!
//! The functions run in the transaction that changes a domain, so that records and change log agree. A served domain
//! has a site; its redirect is computed again whenever the domain or its target changes.

use contract::feed::{Entity, EntityName};
use contract::hostname::Hostname;
use contract::time::UnixMillis;

use crate::domain::kept::KeptDomain;
use crate::domain::redirect;
use crate::domain::{Domain, RedirectTarget};
use crate::store::projects::{ProjectRecord, Removed, end_sessions, save_removal};
use crate::store::withdrawals::Kind;
use crate::store::{Result, Write, acme, domains, keys, queue};

/// The target of a domain's redirect.
pub(crate) async fn target_of(write: &mut Write, domain: &Domain, target: &RedirectTarget) -> Result<Option<Domain>> {
    match target {
        RedirectTarget::Primary => domains::find_primary(write.connection(), &domain.project).await,
        RedirectTarget::Name(name) => domains::find_domain(write.connection(), &domain.project, name).await,
    }
}

/// Publishes the domain's site. The domain must be saved. An unreadable domain's site stays as it is.
pub(crate) async fn site(write: &mut Write, domain: &Domain) -> Result<()> {
    if domain.unreadable.is_some() {
        return Ok(());
    }
    let target = if let Some(rule) = &domain.redirect { target_of(write, domain, &rule.to).await? } else { None };
    let destination = redirect::destination(domain.redirect.as_ref(), target.as_ref());
    let Some(site) = domain.site(destination) else { return withdraw_site(write, domain).await };
    write.put(Entity::Site(site)).await?;
    write.forget_withdrawal(Kind::Name, domain.name.as_str(), &domain.project).await
}

/// Publishes the sites of the domain and of those that redirect to it. The domain must be saved.
pub(crate) async fn site_and_dependants(write: &mut Write, domain: &Domain) -> Result<()> {
    site(write, domain).await?;
    for dependant in domains::dependants(write.connection(), domain, domain.primary).await? {
        site(write, &dependant).await?;
    }
    Ok(())
}

/// Withdraws the site if the name belongs to this project; another project's site of the same name stays. The
/// withdrawal ends when every gateway has confirmed it, although no API call waits for the result.
async fn withdraw_site(write: &mut Write, domain: &Domain) -> Result<()> {
    let claims = domains::find_claims(write.connection(), &domain.name).await?;
    if claims.holder.as_ref().is_some_and(|holder| *holder != domain.project) {
        return Ok(());
    }
    let before = write.revision();
    write.remove(EntityName::Site(domain.name.clone())).await?;
    if write.revision() != before {
        write.record_withdrawal(Kind::Name, domain.name.as_str(), &domain.project).await?;
    }
    Ok(())
}

/// Withdraws all entities of the name, if it belongs to this project.
pub(crate) async fn withdraw(write: &mut Write, domain: &Domain) -> Result<()> {
    let claims = domains::find_claims(write.connection(), &domain.name).await?;
    if claims.holder.as_ref().is_some_and(|holder| *holder != domain.project) {
        return Ok(());
    }
    write.remove(EntityName::Site(domain.name.clone())).await?;
    write.remove(EntityName::Certificate(domain.name.clone())).await?;
    withdraw_challenges(write, &domain.name).await
}

/// Withdraws a domain, releases its name and deletes its record.
pub(crate) async fn forget(write: &mut Write, domain: &Domain, lineage: &str) -> Result<()> {
    let now = write.now();
    withdraw(write, domain).await?;
    domains::release(write.connection(), &domain.name, &domain.project, lineage, now).await?;
    domains::delete_domain(write.connection(), domain).await?;
    queue::leave(write.connection(), &domain.name, &domain.project.uid).await?;
    acme::abandon_orders(write.connection(), &domain.name, now).await
}

/// Withdraws all entities of the project, releases its names, and keeps its data until `erase_at`.
pub(crate) async fn withdraw_project(
    write: &mut Write,
    platform: &Hostname,
    project: &mut ProjectRecord,
    erase_at: UnixMillis,
) -> Result<()> {
    let now = write.now();
    let mut kept = Vec::new();
    for domain in domains::all_domains(write.connection(), &project.id).await? {
        forget(write, &domain, &project.salt).await?;
        if domain.removal.is_none() {
            kept.push(KeptDomain::of(&domain));
        }
    }
    for key in keys::all_keys(write.connection(), &project.id).await? {
        keys::withdraw(write, &key).await?;
    }
    if let Some(host) = project.host(platform) {
        write.remove(EntityName::Site(host)).await?;
    }
    write.remove(EntityName::Project(project.id.name.clone())).await?;
    write.record_withdrawal(Kind::Project, project.id.name.as_str(), &project.id).await?;
    end_sessions(write.connection(), &project.id).await?;
    project.removed = Some(Removed { at: now, erase_at, domains: kept });
    project.updated_at = now;
    save_removal(write.connection(), project).await
}

/// Withdraws the answers to challenges for the name: the authority has its verdict.
pub(crate) async fn withdraw_challenges(write: &mut Write, name: &Hostname) -> Result<()> {
    for token in write.challenge_tokens(name).await? {
        write.remove(EntityName::Challenge(token)).await?;
    }
    Ok(())
}
