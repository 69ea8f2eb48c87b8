//! What adding a name would mean, without adding it.

use axum::response::{IntoResponse, Response};
use axum::routing::on;
use chassis::openapi::{Parameter, Success};
use contract::schema;
use http::header;
use serde_json::json;
use verification::facts::Claim;

use super::domains::{no_domain, reading, throttle, unattachable};
use super::extract::{Authorised, Params};
use super::types::{self, DomainCheck};
use super::{Operation, projects, view};
use crate::domain::Domain;
use crate::domain::name::Attachable;
use crate::error::{ApiError, Code};
use crate::reconcile;
use crate::store::domains;
use crate::throttle::Asking;

/// Checks of names.
pub(super) const OPERATIONS: &[Operation] = &[CHECK];

const CHECK: Operation = Operation {
    summary: "Check a name",
    description: "What adding it would mean, without adding it.",
    parameters: &[Parameter {
        required: true,
        ..Parameter::query("name", "The name that might be added.", || json!({ "type": "string", "minLength": 1 }))
    }],
    answers: &[Success::new(200, "What was seen.", schema::of::<DomainCheck>)],
    errors: &[
        Code::InvalidDomain,
        Code::ReservedDomain,
        Code::PublicSuffix,
        Code::PlatformDomain,
        Code::VerifyThrottled,
        Code::ResolverUnavailable,
    ],
    ..reading("checkDomain", "/v1/projects/{project}/domain-check", |get| on(get, check))
};

/// `GET …/domain-check?name=`: what adding the name would mean, without adding it.
async fn check(Authorised { app, project: id, .. }: Authorised, params: Params) -> Result<Response, ApiError> {
    let project = projects::load(&app, &id).await?;
    let text = params.text("name").unwrap_or_default();
    let Attachable { name, local, .. } = app.core.settings.attachable(text).map_err(unattachable)?;
    throttle(&app, Asking::Check, &id, name.as_str())?;
    let mut connection = app.core.store.reader().acquire().await?;
    let claims = domains::find_claims(&mut connection, &name).await?;
    drop(connection);
    let mut domain = Domain::added(name, id, app.core.clock.now());
    let claim = reconcile::claim(&claims, &project, &domain);
    let Some(check) = reconcile::check_dns(&app, &project, &domain, claim).await else { return Err(no_domain()) };
    if check.unreachable() {
        let message = "No DNS resolver answers right now. Try again shortly.";
        return Err(Code::ResolverUnavailable.refuse(message).with_header(header::RETRY_AFTER, "5").into());
    }
    domain.is_apex = check.judged.is_apex;
    domain.checks = check.checks;
    domain.problems = check.judged.problems;
    let types::Domain { name, unicode_name, is_apex, records, problems, checks, .. } =
        view::domain(&app, &project, &domain);
    let contested = claim == Claim::Contested;
    let checked = DomainCheck { name, unicode_name, local, is_apex, contested, records, problems, checks };
    Ok(axum::Json(checked).into_response())
}
