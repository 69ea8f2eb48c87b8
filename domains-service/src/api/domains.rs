//! Domains: list, show, events, and their JSON; other operations are in the modules below.

pub(super) mod add;
pub(super) mod change;
pub(super) mod verify;

use std::collections::HashMap;

use aws_lc_rs::digest::{SHA256, digest};
use axum::response::IntoResponse;
use axum::routing::on;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chassis::openapi::{Method, Parameter, Success};
use contract::hostname::Hostname;
use contract::key::Scope;
use contract::schema;
use contract::time::UnixMillis;
use http::{StatusCode, header};
use serde_json::json;
use verification::problem::{Problem, ProblemCode};
use verification::verdict::{Checks, Records};
use verification::{TEXT_LABEL, TTL_SECONDS};

use super::extract::{Authorised, CURSOR, LIMIT, NUMBER_CURSOR, Params};
use super::types::{self, DomainQuota, Domains, Events, Record, RecordPurpose, RecordType, Rfc3339};
use super::{Handler, Operation, projects, view};
use crate::app::{App, Issuing};
use crate::common::Core;
use crate::domain::name::Attachable;
use crate::domain::{CertificateState, Domain, Status};
use crate::error::{ApiError, ApiResult, Code};
use crate::issuer::QueuePosition;
use crate::project::ProjectRef;
use crate::store::projects::ProjectRecord;
use crate::store::withdrawals::Kind;
use crate::store::{Write, domains};
use crate::withdrawals::PendingWithdrawals;

/// Longest hostname in characters, and so the longest filter by a part of a name.
const NAME_PART_MAX: usize = 253;

/// Bytes of a digest that are enough to tell two states of one domain apart.
const TAG_BYTES: usize = 12;

/// Operations that only read.
pub(super) const OPERATIONS: &[Operation] = &[LIST, SHOW, EVENTS];

const LIST: Operation = Operation {
    summary: "List domains",
    description: "The project's domains, and how many its plan has.",
    parameters: &[
        Parameter::query(
            "name",
            "Part of the names wanted; absent: any.",
            || json!({ "type": "string", "maxLength": NAME_PART_MAX }),
        ),
        Parameter::query(
            "status",
            "The state of those wanted; absent: any.",
            || json!({ "type": "string", "enum": Status::WORDS }),
        ),
        CURSOR,
        LIMIT,
    ],
    answers: &[Success::new(200, "A page of domains, by name.", schema::of::<Domains>)],
    errors: &[Code::InvalidQuery],
    ..reading("listDomains", "/v1/projects/{project}/domains", |get| on(get, list))
};

const SHOW: Operation = Operation {
    summary: "Show a domain",
    description: "Its state, and what its owner must do.",
    answers: &[answers_domain(200, "The domain.")],
    ..reading("showDomain", "/v1/projects/{project}/domains/{domain}", |get| on(get, show))
};

const EVENTS: Operation = Operation {
    summary: "List a domain's events",
    description: "What happened to it; a removed domain keeps its events.",
    parameters: &[NUMBER_CURSOR],
    answers: &[Success::new(200, "A page of events, newest first.", schema::of::<Events>)],
    errors: &[Code::InvalidQuery, Code::DomainNotFound],
    ..reading("listDomainEvents", "/v1/projects/{project}/domains/{domain}/events", |get| on(get, events))
};

/// An operation that only reads domains; the others are derived from it.
const fn reading(id: &'static str, path: &'static str, handler: Handler) -> Operation {
    Operation {
        tag: "domains",
        scope: Some(Scope::DomainsRead),
        errors: &[Code::DomainNotFound],
        ..Operation::internal(id, Method::Get, path, handler)
    }
}

const fn writing(id: &'static str, method: Method, path: &'static str, handler: Handler) -> Operation {
    Operation { method, scope: Some(Scope::DomainsWrite), ..reading(id, path, handler) }
}

/// An answer with a domain and its `ETag`.
const fn answers_domain(status: u16, description: &'static str) -> Success {
    Success::new(status, description, schema::of::<types::Domain>).with(&["ETag"])
}

/// Withdrawals of a domain: gateways may still serve it for a while.
const WITHDRAWN: &[Kind] = &[Kind::Name, Kind::Redirect];

/// A domain as a response. Its ETag depends only on the record, not on which gateways have applied it.
async fn response(app: &App, project: &ProjectRecord, domain: &Domain, status: StatusCode) -> ApiResult {
    let mut shown = representation(&app.core, project, domain);
    let etag = etag_of(&shown);
    let pending = PendingWithdrawals::of(&app.gateways, &project.id.uid).await?;
    shown.withdrawal = pending.find(WITHDRAWN, domain.name.as_str());
    show_queue_position(&mut shown, &queue_positions(&app.issuing, project).await);
    Ok((status, [(header::ETAG, etag)], axum::Json(shown)).into_response())
}

/// The positions of the project's names in the queue of orders. They change with every order, so they are no part of
/// the record.
async fn queue_positions(issuing: &Issuing, project: &ProjectRecord) -> HashMap<String, QueuePosition> {
    issuing.authorities.places(&project.id.uid).await.unwrap_or_else(|error| {
        tracing::warn!(
            project.id = %project.id, %error,
            "cannot read the queue of orders; showing domains without their queue positions"
        );
        HashMap::new()
    })
}

/// Adds a domain's position in the queue, if it waits there.
fn show_queue_position(shown: &mut types::Domain, positions: &HashMap<String, QueuePosition>) {
    let Some(position) = positions.get(shown.name.as_str()) else { return };
    let at = position.at.map(Rfc3339::from);
    shown.certificate.queue = Some(types::QueuePosition { number: position.number, at: at.clone() });
    if shown.certificate.next_attempt_at.is_none() {
        shown.certificate.next_attempt_at.clone_from(&at);
    }
    for problem in shown.problems.iter_mut().filter(|problem| problem.code == ProblemCode::CertQueued) {
        problem.retry_at = at.clone().or(problem.retry_at.take());
    }
}

/// `GET …/domains`.
async fn list(
    Authorised { part: App { core, gateways, issuing, .. }, project: id, .. }: Authorised<0, App>,
    params: Params,
) -> ApiResult {
    let limit = params.limit()?;
    let project = projects::load(&core, &id).await?;
    let status = params.text("status").filter(|word| !word.is_empty()).map(str::parse::<Status>).transpose();
    let status = status.map_err(|_| Code::InvalidQuery.refuse("status must be a state of domains, such as active."))?;
    let part = params.text("name").unwrap_or_default();
    if part.chars().count() > NAME_PART_MAX {
        return Code::InvalidQuery.fail(format!("name has at most {NAME_PART_MAX} characters."));
    }
    let part = part.trim().to_lowercase();
    // A name in another script is kept in its ASCII form.
    let part = if part.is_ascii() { part } else { Hostname::parse(&part).map_or(part, |name| name.to_string()) };
    let wanted = (part.as_str(), status.map_or("", Status::as_str));
    let found = core.store.domains(&id, params.text("cursor").unwrap_or_default(), wanted, limit).await?;
    let used = domains::count_domains(core.store.reader(), &id).await?;
    let pending = PendingWithdrawals::of(&gateways, &id.uid).await?;
    let positions = queue_positions(&issuing, &project).await;
    let show = |domain: &Domain| {
        let mut shown = representation(&core, &project, domain);
        shown.withdrawal = pending.find(WITHDRAWN, domain.name.as_str());
        show_queue_position(&mut shown, &positions);
        shown
    };
    let (list, next) = view::page(&found, limit, |domain| domain.name.to_string(), show);
    let quota = DomainQuota { allocated: core.settings.plans.of(project.plan).domains, used, hard_cap: true };
    Ok(axum::Json(Domains { domains: list, next_cursor: next, quota }).into_response())
}

/// The project's domain of a name in a path, or 404.
async fn load(core: &Core, id: &ProjectRef, name: &str) -> ApiResult<Domain> {
    let name = Hostname::parse(name).map_err(|_| no_domain())?;
    core.store.find_domain(id, &name).await?.ok_or_else(no_domain)
}

/// The same within a writing transaction; also a domain that is being removed.
async fn find_any(write: &mut Write, project: &ProjectRef, name: &str) -> ApiResult<Domain> {
    let name = Hostname::parse(name).map_err(|_| no_domain())?;
    domains::find_domain(write.connection(), project, &name).await?.ok_or_else(no_domain)
}

/// The same, except a domain that is being removed.
async fn find(write: &mut Write, project: &ProjectRef, name: &str) -> ApiResult<Domain> {
    let domain = find_any(write, project, name).await?;
    if domain.removal.is_some() {
        return Code::RemovalInProgress.fail("The domain is being removed.");
    }
    Ok(domain)
}

/// The refusal for an unknown domain.
fn no_domain() -> ApiError {
    Code::DomainNotFound.refuse("The project has no domain of this name.").into()
}

/// `GET …/domains/{domain}`.
async fn show(Authorised { part: app, project: id, rest: [name], .. }: Authorised<1, App>) -> ApiResult {
    let project = projects::load(&app.core, &id).await?;
    let domain = load(&app.core, &id, &name).await?;
    response(&app, &project, &domain, StatusCode::OK).await
}

/// `GET …/domains/{domain}/events`.
async fn events(
    Authorised { part: core, actor, project: id, rest: [name], .. }: Authorised<1>,
    params: Params,
) -> ApiResult {
    projects::load(&core, &id).await?;
    let name = Hostname::parse(&name).map_err(|_| no_domain())?;
    let events = core.store.events(&id, Some(&name), Some(params.number_cursor()?)).await?;
    if events.is_empty() {
        load(&core, &id, name.as_str()).await?; // never added: 404; a removed domain keeps its events
    }
    Ok(projects::events_page(&events, &actor))
}

/// A domain as JSON.
fn representation(core: &Core, project: &ProjectRecord, domain: &Domain) -> types::Domain {
    let redirect = domain.redirect.as_ref().map(|rule| types::Redirect {
        to: rule.to.as_str().to_owned(),
        status: rule.status.map(contract::site::RedirectStatus::code),
    });
    let attachable = core.settings.attachable(domain.name.as_str()).ok();
    let seems_apex = attachable.as_ref().is_some_and(|name| name.seems_apex() && !name.local);
    let is_apex = domain.is_apex.unwrap_or(seems_apex);
    types::Domain {
        name: domain.name.clone(),
        unicode_name: domain.name.to_unicode(),
        project_id: domain.project.name.clone(),
        status: domain.status,
        status_since: domain.status_since.into(),
        primary: domain.primary,
        redirect,
        is_apex,
        records: attachable.map_or_else(Vec::new, |name| records(core, project, domain, &name, is_apex)),
        checks: domain.checks.as_ref().map(checks),
        problems: domain.problems.iter().map(problem).collect(),
        next_check_at: domain.due_at.map(Rfc3339::from),
        certificate: certificate(&domain.certificate),
        withdrawal: None,
        created_at: domain.created_at.into(),
        updated_at: domain.updated_at.into(),
        rev: domain.rev,
    }
}

fn problem(problem: &Problem) -> types::Problem {
    let Problem { code, severity, who, message, expected, observed, place, fix, retry_at } = problem.clone();
    let retry_at = retry_at.map(Rfc3339::from);
    types::Problem { code, severity, who, message, expected, observed, place, fix, retry_at }
}

/// The value of `ETag` for a domain: it changes with every field that is shown.
fn etag_of(shown: &types::Domain) -> String {
    // Members in the order of their names.
    let digest = digest(&SHA256, json!(shown).to_string().as_bytes());
    format!("\"{}\"", URL_SAFE_NO_PAD.encode(digest.as_ref().get(..TAG_BYTES).unwrap_or_default()))
}

/// The records that the owner must create, in the form that DNS providers ask for.
fn records(
    core: &Core,
    project: &ProjectRecord,
    domain: &Domain,
    attachable: &Attachable,
    is_apex: bool,
) -> Vec<Record> {
    if attachable.local {
        return Vec::new(); // it means this machine by definition
    }
    let zone = domain.checks.as_ref().and_then(|checks| checks.zone.as_deref());
    let zone = zone.unwrap_or(attachable.registrable.as_str());
    let relative = |name: &str| match name.strip_suffix(zone).map(|label| label.trim_end_matches('.')) {
        Some("") => "@".to_owned(),
        Some(label) => label.to_owned(),
        None => name.to_owned(),
    };
    let state = domain.checks.as_ref().map_or(Records::Unknown, |checks| checks.record);
    let mut records = vec![Record {
        kind: if is_apex { RecordType::Alias } else { RecordType::Cname },
        name: relative(domain.name.as_str()),
        fqdn: domain.name.to_string(),
        value: project.proof().target(&core.settings.edge_zone).to_string(),
        ttl: TTL_SECONDS,
        purpose: RecordPurpose::Traffic,
        state,
    }];
    let text_state = domain.checks.as_ref().and_then(|checks| checks.txt);
    // Before the first check of an apex it is shown as well, so that the owner creates both records at once.
    let is_new = is_apex && domain.checks.is_none() && !domain.status.is_served();
    if text_state.is_some() || is_new || domain.status == Status::PendingOwnership {
        let place = format!("{TEXT_LABEL}.{}", domain.name);
        records.push(Record {
            kind: RecordType::Txt,
            name: relative(&place),
            fqdn: place,
            value: project.proof().ownership_text(&domain.name),
            ttl: TTL_SECONDS,
            purpose: RecordPurpose::Ownership,
            state: text_state.unwrap_or(Records::Unknown),
        });
    }
    records
}

fn checks(checks: &Checks) -> types::Checks {
    let Checks { at_ms, duration_ms, queries, resolver, nameservers, caa, zone, .. } = checks.clone();
    types::Checks { at: UnixMillis(at_ms).into(), duration_ms, queries, resolver, zone, nameservers, caa }
}

fn certificate(state: &CertificateState) -> types::Certificate {
    types::Certificate {
        status: state.status,
        ca: state.ca.clone(),
        serial: state.serial.clone(),
        not_before: state.not_before.map(Rfc3339::from),
        not_after: state.not_after.map(Rfc3339::from),
        key_type: state.key_type.clone(),
        renew_at: state.renew_at.map(Rfc3339::from),
        queue: None,
        attempts: state.attempts,
        last_error: state.last_error.clone(),
        next_attempt_at: state.next_attempt_at.map(Rfc3339::from),
        rate_limited_until: state.rate_limited_until.map(Rfc3339::from),
    }
}
