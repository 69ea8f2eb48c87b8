//! Changing and removing domains: primary role, redirects, removal.

use std::sync::Arc;

use axum::routing::on;
use chassis::openapi::{Method, Parameter, Presence, Success};
use contract::feed::Revision;
use contract::hostname::Hostname;
use contract::schema;
use contract::site::RedirectStatus;
use http::{HeaderMap, StatusCode, header};
use serde_json::json;

use super::super::extract::{Authorised, Field, Json, Params};
use super::super::types::{self, DomainChange, NewRedirect, Removal};
use super::super::view::removed;
use super::super::{Operation, projects};
use super::{SHOW, answers_domain, etag_of, find, find_any, representation, response, writing};
use crate::app::App;
use crate::domain::redirect::{RedirectError, permit};
use crate::domain::{Domain, RedirectRule, RedirectTarget};
use crate::error::{ApiResult, Code};
use crate::gateways::Gateways;
use crate::publish::{self, target_of};
use crate::reconcile;
use crate::store::withdrawals::Kind;
use crate::store::{Write, domains};
use crate::withdrawals::{self, PendingWithdrawals};

pub(in crate::api) const OPERATIONS: &[Operation] = &[CHANGE, REMOVE];

const CHANGE: Operation = Operation {
    summary: "Change a domain",
    description: "Sets the primary domain, or a redirect.",
    parameters: &[IF_MATCH],
    body: Some((schema::of::<DomainChange>, Presence::Required)),
    answers: &[
        answers_domain(200, "The domain as it is now, on every gateway."),
        answers_domain(
            202,
            "The domain as it is now; the gateways that `withdrawal` lists may still redirect visitors as before the change.",
        ),
    ],
    errors: &[
        Code::InvalidBody,
        Code::InvalidRedirectStatus,
        Code::DomainNotFound,
        Code::PrimaryInUse,
        Code::RedirectLoop,
        Code::RedirectTargetInactive,
        Code::RemovalInProgress,
        Code::StaleRevision,
    ],
    ..writing("changeDomain", Method::Patch, SHOW.path, |patch| on(patch, change))
};

const REMOVE: Operation = Operation {
    summary: "Remove a domain",
    description: "Traffic stops at once, on every gateway that is connected. While some have not \
                  confirmed it, a repeated request gets the same answer.",
    parameters: &[
        IF_MATCH,
        Parameter::query(
            "with_redirects",
            "Whether domains that redirect to it are removed too; otherwise they prevent the removal.",
            || json!({ "type": "boolean", "default": false }),
        ),
    ],
    answers: &[
        Success::empty(204, "No gateway serves it any more.").with(&["X-Edge-Ack"]),
        Success::new(202, "Removed; the gateways listed have not confirmed it.", schema::of::<Removal>)
            .with(&["X-Edge-Ack"]),
    ],
    errors: &[Code::InvalidQuery, Code::DomainNotFound, Code::PrimaryInUse, Code::StaleRevision],
    ..writing("removeDomain", Method::Delete, SHOW.path, |delete| on(delete, remove))
};

const IF_MATCH: Parameter = Parameter {
    name: "If-Match",
    location: "header",
    required: false,
    description: "`ETag` of the domain as read; a later version is not changed.",
    schema: || json!({ "type": "string" }),
};

/// The redirect rule in a request.
pub(super) fn rule_of(redirect: &NewRedirect) -> ApiResult<RedirectRule> {
    let unknown = || Code::InvalidRedirectStatus.refuse("A redirect's status is 301, 302, 307 or 308.");
    let status = redirect.status.map(|code| RedirectStatus::from_code(code).ok_or_else(unknown)).transpose()?;
    let to = match redirect.to.as_str() {
        "primary" => RedirectTarget::Primary,
        name => RedirectTarget::Name(Hostname::parse(name).map_err(|error| {
            Code::InvalidBody.refuse(format!("redirect.to is \"primary\" or a domain of this project: {error}."))
        })?),
    };
    Ok(RedirectRule { to, status })
}

/// Whether the domain may have this redirect.
pub(super) async fn permit_redirect(write: &mut Write, domain: &Domain, rule: &RedirectRule) -> ApiResult<()> {
    let to_primary = rule.to == RedirectTarget::Primary;
    let target = match target_of(write, domain, &rule.to).await? {
        // The one that becomes primary once it is active: a redirect to it can be prepared.
        None if to_primary => domains::find_next_primary(write.connection(), &domain.project, &domain.name).await?,
        found => found,
    };
    let dependants = domains::dependants(write.connection(), domain, domain.primary).await?;
    let others = dependants.iter().filter(|other| other.name != domain.name).count();
    permit(domain, target.as_ref(), to_primary, others).map_err(|error| {
        let refusal = match error {
            RedirectError::Loop(why) => {
                Code::RedirectLoop.refuse(format!("The redirect would loop or take two hops: {why}."))
            }
            RedirectError::Inactive(why) => {
                Code::RedirectTargetInactive.refuse(format!("The redirect's target is not served: {why}."))
            }
            RedirectError::Primary => Code::PrimaryInUse
                .refuse("The primary domain cannot redirect. Make another domain the primary one first."),
        };
        refusal.into()
    })
}

/// `PATCH …/domains/{domain}`: 200 once every gateway has applied the change; 202 while one may still serve the old state.
async fn change(
    Authorised { part: app, actor, project: id, rest: [name], .. }: Authorised<1, App>,
    headers: HeaderMap,
    Json(change): Json<DomainChange>,
) -> ApiResult {
    let core = &app.core;
    let rule = if let Field::Value(redirect) = &change.redirect { Some(rule_of(redirect)?) } else { None };
    let mut write = core.store.write().await?;
    let project = projects::find(&mut write, &id).await?;
    let mut domain = find(&mut write, &project.id, &name).await?;
    check_revision(&headers, &representation(core, &project, &domain))?;
    let before = view_of_choice(&domain);
    if let Some(rule) = rule {
        if change.primary == Some(true) {
            return Code::RedirectLoop.fail("The primary domain cannot redirect. Leave out primary or redirect.");
        }
        permit_redirect(&mut write, &domain, &rule).await?;
        domain.redirect = Some(rule);
        domain.primary_wanted = false;
    } else if matches!(change.redirect, Field::Null) {
        domain.redirect = None;
    }
    match change.primary {
        Some(true) if !domain.primary => make_primary(&mut write, &mut domain).await?,
        Some(false) => unmake_primary(&mut write, &mut domain).await?,
        _ => {}
    }
    let after = view_of_choice(&domain);
    if before == after {
        drop(write);
        withdrawals::repeat(&app.gateways, (&[Kind::Redirect], domain.name.as_str()), &id).await?;
    } else {
        domain.touch(write.now());
        domains::save_domain(write.connection(), &domain).await?;
        publish::site_and_dependants(&mut write, &domain).await?;
        let kind =
            if before.get("primary") == after.get("primary") { "domain.updated" } else { "domain.primary_changed" };
        write.record(&id, Some(&domain.name), kind, &actor, json!({ "before": before, "after": after })).await?;
        if write.changes_the_edge() {
            write.record_withdrawal(Kind::Redirect, domain.name.as_str(), &id).await?;
            withdrawals::confirm(&app.gateways, write, (&[Kind::Redirect], domain.name.as_str()), &id).await?;
        } else {
            write.commit().await?;
        }
    }
    let waits =
        PendingWithdrawals::of(&app.gateways, &id.uid).await?.find(&[Kind::Redirect], domain.name.as_str()).is_some();
    response(&app, &project, &domain, if waits { StatusCode::ACCEPTED } else { StatusCode::OK }).await
}

fn view_of_choice(domain: &Domain) -> serde_json::Value {
    let redirect = domain.redirect.as_ref();
    json!({
        "primary": domain.primary,
        "primary_wanted": domain.primary_wanted,
        "redirect": redirect.map(|rule| json!({ "to": rule.to.as_str(), "status": rule.status })),
    })
}

/// `If-Match`: refuses the change if the domain has changed since its author read it.
fn check_revision(headers: &HeaderMap, shown: &types::Domain) -> ApiResult<()> {
    let mut expected = headers.get_all(header::IF_MATCH).iter().peekable();
    if expected.peek().is_none() {
        return Ok(());
    }
    let current = etag_of(shown);
    let tags = expected.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(',')).map(str::trim);
    if tags.into_iter().any(|tag| tag == "*" || tag == current) {
        return Ok(());
    }
    let message = format!("The domain has changed since; its ETag is {current}. Read it again and repeat the change.");
    Code::StaleRevision.fail(message)
}

/// Makes the domain primary. It serves from now on; redirects to the primary domain lead to it.
async fn make_primary(write: &mut Write, domain: &mut Domain) -> ApiResult<()> {
    if !domain.status.is_served() {
        let message = format!("Only an active domain can be the primary one; this one is {}.", domain.status.as_str());
        return Code::RedirectTargetInactive.fail(message);
    }
    if let Some(mut old) = domains::find_primary(write.connection(), &domain.project).await? {
        old.primary = false;
        old.touch(write.now());
        domains::save_domain(write.connection(), &old).await?;
    }
    domain.primary = true;
    domain.primary_wanted = false;
    domain.redirect = None;
    Ok(())
}

async fn unmake_primary(write: &mut Write, domain: &mut Domain) -> ApiResult<()> {
    domain.primary_wanted = false;
    if !domain.primary {
        return Ok(());
    }
    let dependants = domains::dependants(write.connection(), domain, domain.primary).await?;
    let is_to_primary =
        |other: &&Domain| other.redirect.as_ref().is_some_and(|rule| rule.to == RedirectTarget::Primary);
    if let Some(Domain { name, .. }) = dependants.iter().find(is_to_primary) {
        let message = format!(
            "{name} redirects to the primary domain. Make another domain the primary one, or remove the redirect first."
        );
        return Code::PrimaryInUse.fail(message);
    }
    domain.primary = false;
    Ok(())
}

/// `DELETE …/domains/{domain}?with_redirects=bool`: 204 once every registered gateway process has stopped serving the
/// name; 202 with the names of those that have not within a second, also when the request is repeated.
async fn remove(
    Authorised { part: gateways, actor, project: id, rest: [name], .. }: Authorised<1, Arc<Gateways>>,
    headers: HeaderMap,
    params: Params,
) -> ApiResult {
    let core = &gateways.core;
    let with_redirects = params.value("with_redirects", false, "true or false")?;
    let started = core.clock.monotonic();
    let mut write = core.store.write().await?;
    let project = projects::find(&mut write, &id).await?;
    let domain = find_any(&mut write, &id, &name).await?;
    if let Some(revision) = domain.removal {
        drop(write);
        let acknowledged = withdrawals::wait(&gateways, Revision(revision)).await?;
        return Ok(removed(&acknowledged, core.clock.monotonic().saturating_sub(started)));
    }
    check_revision(&headers, &representation(core, &project, &domain))?;
    let dependants = domains::dependants(write.connection(), &domain, domain.primary).await?;
    if let Some(first) = dependants.first()
        && !with_redirects
    {
        let message = format!(
            "{} redirects to this domain. Redirect it elsewhere first, or remove both with ?with_redirects=true.",
            first.name
        );
        let names: Vec<&Hostname> = dependants.iter().map(|other| &other.name).collect();
        return Err(Code::PrimaryInUse.refuse(message).with_details(json!({ "redirecting": names })).into());
    }
    let name = domain.name.clone();
    let all = std::iter::once(domain).chain(dependants).collect();
    reconcile::remove(&core.metrics, &mut write, all, &project, &actor).await?;
    let acknowledged = withdrawals::confirm(&gateways, write, (&[Kind::Name], name.as_str()), &id).await?;
    Ok(removed(&acknowledged, core.clock.monotonic().saturating_sub(started)))
}
