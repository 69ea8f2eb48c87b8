//! HTTP: the public API behind the gateway, and the internal one for gateways and operators.
//!
//! Domains and keys have one set of handlers: operators may use it for every project, keys for their own. One operation
//! per function; its refusals are a [`crate::error::Code`].

pub(crate) mod callers;
pub(crate) mod credentials;
mod describe;
pub(crate) mod domains;
pub(crate) mod edge;
pub(crate) mod extract;
pub(crate) mod keys;
mod links;
mod overview;
pub(crate) mod projects;
mod removal;
mod services;
mod usage;
mod view;
pub(crate) mod webhooks;

use std::sync::Arc;

use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter};
use axum::{Extension, Router};
use chassis::config::EffectiveSettings;
use chassis::guard::{GatewayGuard, require_gateway};
use chassis::openapi::{self, Method};
use chassis::refusal::{Refusal, RefusalCode};
use chassis::shutdown::Shutdown;
use contract::event::EVENTS_BYTES_MAX;
pub(crate) use describe::{FILE, printed};
pub(crate) use domains_api::types;
use parking_lot::Mutex;

use crate::actor::Actor;
use crate::app::{ApiState, App};
use crate::common::Core;
use crate::error::{ApiResult, Code};
use crate::feed::Permits;
use crate::store::credentials::Kind;

/// One operation of the API.
pub(crate) type Operation = openapi::Operation<App, Code>;

/// Turns a method into its handler.
type Handler = fn(MethodFilter) -> MethodRouter<App>;

/// Every operation of the public API, in the lists of its modules. The router, the metrics, the interface description,
/// the dashboard and the command line come from it. Operators have those of one project below `/internal`, and those of
/// the lists of their own.
pub(crate) const OPERATIONS: &[&[Operation]] = &[
    projects::OPERATIONS,
    usage::OPERATIONS,
    keys::OPERATIONS,
    domains::OPERATIONS,
    domains::add::OPERATIONS,
    domains::change::OPERATIONS,
    domains::verify::OPERATIONS,
    webhooks::OPERATIONS,
    webhooks::deliveries::OPERATIONS,
];

/// Operations of operators that concern more than one project.
const OPERATORS: &[&[Operation]] = &[
    projects::OF_ALL,
    removal::OF_ALL,
    edge::OF_OPERATORS,
    overview::OPERATIONS,
    credentials::OPERATIONS,
    links::OPERATIONS,
];

/// Operations of operators on one project, which keys do not have.
const OPERATORS_IN_PROJECT: &[&[Operation]] = &[projects::OF_OPERATORS, removal::OF_ONE];

/// The path of a project.
const PROJECT: &str = "/v1/projects/{project}";

/// The public API; every request must carry the gateway's signature, and the key of its caller.
pub(crate) fn public(app: App, guard: GatewayGuard) -> Router {
    // What the API is may be read by everybody.
    let descriptions = openapi::routed(describe::DESCRIPTIONS, str::to_owned)
        .method_not_allowed_fallback(method_not_allowed)
        .route_layer(middleware::from_fn_with_state(app.clone(), count));
    openapi::routed(OPERATIONS.iter().copied().flatten(), str::to_owned)
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .route_layer(middleware::from_fn_with_state(app.clone(), limit_changes))
        .route_layer(middleware::from_fn_with_state(app.clone(), count))
        .layer(middleware::from_fn_with_state(app.clone(), callers::require_key))
        .merge(descriptions)
        .layer(middleware::from_fn_with_state(app.clone(), callers::came_through))
        .layer(middleware::from_fn_with_state(extract::BODY_BYTES_MAX, extract::whole_body))
        .layer(middleware::from_fn_with_state(guard, require_gateway))
        .with_state(app)
}

/// Every operation of the public API, and those that serve its description.
pub(crate) fn all() -> impl Iterator<Item = &'static Operation> {
    OPERATIONS.iter().copied().flatten().chain(describe::DESCRIPTIONS)
}

/// The internal API: the change stream with the gateways' credentials, events and what services need with theirs,
/// everything else with those of operators.
pub(crate) fn internal(app: App, effective: Arc<Mutex<EffectiveSettings>>, shutdown: Shutdown) -> Router {
    let require = |kind| middleware::from_fn_with_state((app.core.clone(), kind), callers::require_credential);
    let (gateway, service, operator) = (require(Kind::Gateway), require(Kind::Service), require(Kind::Operator));
    let whole_body = middleware::from_fn_with_state(extract::BODY_BYTES_MAX, extract::whole_body);
    let edge = openapi::routed(edge::OPERATIONS, str::to_owned)
        .route_layer(middleware::from_fn_with_state(app.clone(), count))
        .layer(Extension(shutdown))
        .layer(Extension(Arc::new(Permits::default())))
        .layer(gateway.clone())
        .layer(whole_body.clone())
        .layer(gateway);
    let of_keys = OPERATIONS.iter().copied().flatten().filter(|operation| operation.path.starts_with(PROJECT));
    let in_project = of_keys.chain(OPERATORS_IN_PROJECT.iter().copied().flatten());
    let project = openapi::routed(in_project, at_operators)
        .route_layer(middleware::from_fn_with_state(app.clone(), find_project));
    let operators = openapi::routed(OPERATORS.iter().copied().flatten(), str::to_owned)
        .merge(project)
        .merge(chassis::admin::settings(SETTINGS_PATH, effective))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .route_layer(middleware::from_fn_with_state(app.clone(), count))
        .layer(operator.clone())
        .layer(whole_body)
        .layer(operator);
    let events = openapi::routed(services::OPERATIONS, str::to_owned)
        .route_layer(middleware::from_fn_with_state(app.clone(), count))
        .layer(service.clone())
        .layer(middleware::from_fn_with_state(EVENTS_BYTES_MAX, extract::whole_body))
        .layer(service);
    edge.merge(operators).merge(events).with_state(app)
}

/// The operations for the dashboard, which is a client of the API in the same process: what it can do is what the API
/// can do, with the same refusals. Across projects it only reads. Requests carry their [`Actor`] as an extension.
pub(crate) fn in_process(app: App) -> Router {
    let read = OPERATORS.iter().copied().flatten().filter(|operation| operation.method == Method::Get);
    openapi::routed(OPERATIONS.iter().copied().flatten().chain(read), str::to_owned)
        .fallback(not_found)
        .route_layer(middleware::from_fn_with_state(app.clone(), find_project))
        .method_not_allowed_fallback(method_not_allowed)
        .route_layer(middleware::from_fn_with_state(app.clone(), limit_changes))
        .route_layer(middleware::from_fn_with_state(app.clone(), count))
        .with_state(app)
}

/// An operation that pages or the command line call.
pub(crate) fn named(wanted: domains_api::Operation) -> Option<&'static Operation> {
    let mut all = OPERATIONS.iter().chain(OPERATORS).chain(OPERATORS_IN_PROJECT).copied().flatten();
    all.find(|operation| operation.id == wanted.as_str())
}

const SETTINGS_PATH: &str = "/internal/settings";

/// The path of a public operation on the internal listener.
pub(crate) fn at_operators(path: &str) -> String {
    path.strip_prefix("/v1").map_or_else(|| path.to_owned(), |rest| format!("/internal{rest}"))
}

/// The name of an operation in metrics, by its method and the pattern of its path.
pub(crate) fn name(method: &str, pattern: &str) -> &'static str {
    let public = pattern.strip_prefix("/internal").map(|rest| format!("/v1{rest}"));
    let public = public.as_deref().unwrap_or(pattern);
    let internal = OPERATORS.iter().chain(OPERATORS_IN_PROJECT).chain(&[edge::OPERATIONS, services::OPERATIONS]);
    openapi::label(all(), method, public)
        .or_else(|| openapi::label(internal.copied().flatten(), method, pattern))
        .or((pattern == SETTINGS_PATH).then_some("showSettings"))
        .unwrap_or("unknown")
}

/// Whether an operation of the public API or of the operators has this name.
fn named_publicly(operation: &str) -> bool {
    let operators = OPERATORS.iter().chain(OPERATORS_IN_PROJECT).copied().flatten();
    all().chain(operators).any(|one| one.id == operation)
}

/// Counts the request under its operation and class of status.
async fn count(State(api): State<Arc<ApiState>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let operation = name(request.method().as_str(), path);
    // Reports of gateways and services may write nothing.
    let is_change = !request.method().is_safe() && named_publicly(operation);
    let response = next.run(request).await;
    let class = class(response.status().as_u16());
    api.core.metrics.requests.with_label_values(&[operation, class]).inc();
    if class == "5xx"
        && let Some(code) = response.extensions().get::<RefusalCode>()
    {
        *api.faults.last_trouble.lock() = Some((code.0.clone(), api.core.clock.now()));
    } else if class == "2xx" && is_change {
        *api.faults.last_trouble.lock() = None;
    }
    response
}

const fn class(status: u16) -> &'static str {
    match status {
        ..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        _ => "5xx",
    }
}

/// Finds the project in an operator's path. The holder of a key always gets the key's own project.
async fn find_project(
    State(core): State<Arc<Core>>,
    parameters: RawPathParams,
    mut request: Request,
    next: Next,
) -> ApiResult {
    let operator = request.extensions().get::<Actor>().filter(|actor| actor.is_operator()).cloned();
    let name = parameters.iter().find(|(parameter, _)| *parameter == "project").and_then(|(_, name)| name.parse().ok());
    if let Some((actor, name)) = operator.zip(name) {
        let project = core.store.project_named(&name).await?;
        request.extensions_mut().insert(actor.within(project));
    }
    Ok(next.run(request).await)
}

/// Limits the rate of changes of a session and of a project. Operators on the internal listener have no limit: they are
/// the platform's own.
async fn limit_changes(State(api): State<Arc<ApiState>>, request: Request, next: Next) -> Response {
    let session = request.extensions().get::<Actor>().filter(|_| !request.method().is_safe()).map(Actor::session);
    if let Some(Err(wait)) = session.map(|(session, project)| api.throttles.changes.admit(&session, project)) {
        let seconds = wait.as_millis().div_ceil(1_000).max(1);
        let message = format!("Too many changes. Retry in {seconds} s; reading is not counted.");
        let refusal = Code::TooManyChanges.refuse(message);
        return refusal.with_header(http::header::RETRY_AFTER, &seconds.to_string()).into_response();
    }
    next.run(request).await
}

async fn not_found(State(core): State<Arc<Core>>) -> Refusal {
    core.metrics.requests.with_label_values(&["unknown", "4xx"]).inc();
    Code::NotFound.refuse("There is nothing at this path.")
}

/// The router adds `Allow`.
async fn method_not_allowed() -> Refusal {
    Code::MethodNotAllowed.refuse("The method is not allowed here; the Allow header lists those that are.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_pages_and_commands_are_in_the_api() {
        for operation in domains_api::Operation::ALL {
            assert!(named(*operation).is_some(), "{}", operation.as_str());
        }
    }
}
