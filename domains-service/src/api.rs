//! HTTP: the public API behind the gateway, and the internal one for gateways and operators.
//!
//! Domains and keys have one set of handlers: operators reach every project's, callers their own. One operation per
//! function; what it may not do is a [`crate::error::Code`].

pub(crate) mod callers;
mod changes;
pub(crate) mod credentials;
mod describe;
pub(crate) mod domains;
mod door;
mod edge;
pub(crate) mod extract;
pub(crate) mod keys;
mod operations;
mod projects;
mod removal;
mod services;
mod view;
pub(crate) mod webhooks;

use std::sync::Arc;

use axum::extract::{RawPathParams, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use chassis::config::EffectiveSettings;
use chassis::guard::{GatewayGuard, require_gateway};
use chassis::refusal::Refusal;
use chassis::routes::{Routes, routed};
use chassis::shutdown::Shutdown;
use contract::erasure::ERASURES_PATH;
use contract::event::{EVENTS_BYTES_MAX, ORDER_EVENTS_PATH};
use contract::trust::{PASSES_PATH, TRUST_PATH};
#[cfg(test)]
pub(crate) use operations::operation;
use parking_lot::Mutex;

use self::door::Door;
use crate::actor::Actor;
use crate::app::App;
use crate::error::{Code, Stop};
use crate::feed::Places;
use crate::store::credentials::Kind;

/// Where everything of one project is.
const PROJECT: &str = "/v1/projects/{project}";

/// The public API; every request must carry the gateway's signature, and the key of its caller.
pub(crate) fn public(app: Arc<App>, guard: GatewayGuard) -> Router {
    // What the API is may be read by everybody.
    let descriptions = routed(describe::routes())
        .method_not_allowed_fallback(method_not_allowed)
        .route_layer(middleware::from_fn_with_state(app.clone(), operations::count));
    Router::new()
        .nest(PROJECT, routed(of_a_callers_project()))
        .merge(routed(of_all_callers()))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .route_layer(middleware::from_fn_with_state(app.clone(), pace))
        .route_layer(middleware::from_fn_with_state(app.clone(), operations::count))
        .layer(middleware::from_fn_with_state(app.clone(), callers::require_key))
        .merge(descriptions)
        .layer(middleware::from_fn_with_state(app.clone(), callers::came_through))
        .layer(middleware::from_fn_with_state(extract::BODY_BYTES_MAX, extract::whole_body))
        .layer(middleware::from_fn_with_state(guard, require_gateway))
        .with_state(app)
}

/// Every path of the public API.
pub(crate) fn paths() -> Vec<String> {
    let of_project =
        of_a_callers_project().into_iter().map(|(path, _)| format!("{PROJECT}{}", path.trim_end_matches('/')));
    let others = of_all_callers().into_iter().chain(describe::routes());
    of_project.chain(others.map(|(path, _)| path.to_owned())).collect()
}

/// The internal API: the change stream with the gateways' credentials, events and what services need with theirs,
/// everything else with those of operators, what the dashboard adds among it.
pub(crate) fn internal(
    app: Arc<App>,
    effective: Arc<Mutex<EffectiveSettings>>,
    of_the_dashboard: Router<Arc<App>>,
    shutdown: Shutdown,
) -> Router {
    let door = |lets_in| middleware::from_fn_with_state(Door { app: app.clone(), lets_in }, door::pass);
    let (gateway, service, operator) = (door(&[Kind::Gateway]), door(&[Kind::Service]), door(&[Kind::Operator]));
    let whole_body = middleware::from_fn_with_state(extract::BODY_BYTES_MAX, extract::whole_body);
    let edge = Router::new()
        .route("/internal/edge/feed", get(edge::feed))
        .route("/internal/edge/nodes", post(edge::report))
        .route("/internal/edge/usage", post(edge::usage))
        .route("/internal/edge/keys", post(edge::take_keys))
        .route_layer(middleware::from_fn_with_state(app.clone(), operations::count))
        .layer(Extension(shutdown))
        .layer(Extension(Arc::new(Places::default())))
        .layer(gateway.clone())
        .layer(whole_body.clone())
        .layer(gateway);
    let project = Router::new()
        .route("/", get(projects::show).patch(projects::change).delete(removal::remove))
        .route("/deploy", post(projects::deploy))
        .route("/restore", post(removal::restore))
        .merge(routed(of_one_project()))
        .route_layer(middleware::from_fn_with_state(app.clone(), place));
    let operators = Router::new()
        .route("/internal/projects", get(projects::list).post(projects::create))
        .route("/internal/removed-projects", get(removal::list))
        .nest("/internal/projects/{project}", project)
        .route("/internal/nodes", get(edge::nodes))
        .route("/internal/credentials", get(credentials::list).post(credentials::create))
        .route("/internal/credentials/{kind}/{name}", delete(credentials::revoke))
        .route("/internal/credentials/gateway/{gateway}/changes", get(credentials::changes))
        .route("/internal/gateway-keys", post(credentials::rotate))
        .route("/internal/status", get(edge::status))
        .route("/internal/withdrawals", get(edge::withdrawals))
        .merge(of_the_dashboard)
        .route(PASSES_PATH, post(credentials::pass))
        .merge(chassis::admin::settings("/internal/settings", effective))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .route_layer(middleware::from_fn_with_state(app.clone(), operations::count))
        .layer(operator.clone())
        .layer(whole_body)
        .layer(operator);
    let events = Router::new()
        .route(ORDER_EVENTS_PATH, post(services::take_order_events))
        .route(TRUST_PATH, get(services::trust))
        .route("/internal/known-projects/{uid}", get(services::known_project))
        .route(ERASURES_PATH, get(services::erasures).post(services::erased))
        .route_layer(middleware::from_fn_with_state(app.clone(), operations::count))
        .layer(service.clone())
        .layer(middleware::from_fn_with_state(EVENTS_BYTES_MAX, extract::whole_body))
        .layer(service);
    edge.merge(operators).merge(events).with_state(app)
}

/// The operations for the dashboard, which is a client of the API in the same process: what it can do is what the API
/// can do, with the same refusals. Requests carry their [`Actor`] as an extension.
pub(crate) fn in_process(app: Arc<App>) -> Router {
    let project = routed(of_a_callers_project()).route_layer(middleware::from_fn_with_state(app.clone(), place));
    Router::new()
        .nest(PROJECT, project)
        .route("/internal/projects", get(projects::list))
        .route("/internal/nodes", get(edge::nodes))
        .route("/internal/status", get(edge::status))
        .route("/internal/withdrawals", get(edge::withdrawals))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .route_layer(middleware::from_fn_with_state(app.clone(), pace))
        .route_layer(middleware::from_fn_with_state(app.clone(), operations::count))
        .with_state(app)
}

/// What callers and operators do in one project.
fn of_one_project() -> Routes<Arc<App>> {
    vec![
        ("/keys", get(keys::list).post(keys::create)),
        ("/keys/{key}", delete(keys::revoke)),
        ("/keys/{key}/rotate", post(keys::rotate)),
        ("/domains", get(domains::list).post(domains::add)),
        ("/domains/{domain}", get(domains::show).patch(changes::change).delete(changes::remove)),
        ("/domains/{domain}/verify", post(domains::verify)),
        ("/domains/{domain}/events", get(domains::events)),
        ("/domain-check", get(domains::check)),
        ("/events", get(projects::events)),
        ("/webhooks", get(webhooks::list).post(webhooks::create)),
        ("/webhooks/{webhook}", get(webhooks::show).patch(webhooks::change).delete(webhooks::remove)),
        ("/webhooks/{webhook}/rotate", post(webhooks::rotate)),
        ("/webhooks/{webhook}/test", post(webhooks::deliveries::test)),
        ("/webhooks/{webhook}/deliveries", get(webhooks::deliveries::list)),
        ("/webhooks/{webhook}/deliveries/{delivery}/repeat", post(webhooks::deliveries::repeat)),
    ]
}

/// What callers do in their own project.
fn of_a_callers_project() -> Routes<Arc<App>> {
    let mut routes = of_one_project();
    routes.push(("/", get(projects::show)));
    routes
}

/// What needs no project.
fn of_all_callers() -> Routes<Arc<App>> {
    vec![("/v1/acme-account", get(projects::acme_account))]
}

/// Finds the project that an operator names in the path. Holders of keys are in their own wherever they ask.
pub(crate) async fn place(
    State(app): State<Arc<App>>,
    parameters: RawPathParams,
    mut request: Request,
    next: Next,
) -> Response {
    let operator = request.extensions().get::<Actor>().filter(|actor| actor.is_operator()).cloned();
    let name = parameters.iter().find(|(parameter, _)| *parameter == "project").and_then(|(_, name)| name.parse().ok());
    if let Some((actor, name)) = operator.zip(name) {
        match app.core.store.project_named(&name).await {
            Ok(place) => drop(request.extensions_mut().insert(actor.within(place))),
            Err(error) => return Stop::from(error).into_response(),
        }
    }
    next.run(request).await
}

/// Lets changes through at the pace a session and a project may have. Operators on the internal listener have none: they
/// are the platform's own.
async fn pace(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let actor = request.extensions().get::<Actor>().filter(|_| !request.method().is_safe());
    let outcome = actor.map_or(Ok(()), |actor| {
        let (session, project) = actor.session();
        app.api.pace.change(&session, project)
    });
    match outcome {
        Ok(()) => next.run(request).await,
        Err(wait) => {
            let seconds = wait.as_millis().div_ceil(1_000).max(1);
            let message = format!("Changes come too often. Ask again in {seconds} s; reading is not counted.");
            let refusal = Code::TooManyChanges.refuse(message);
            refusal.with_header(http::header::RETRY_AFTER, &seconds.to_string()).into_response()
        }
    }
}

async fn not_found(State(app): State<Arc<App>>) -> Refusal {
    operations::unknown(&app);
    Code::NotFound.refuse("There is nothing at this path.")
}

/// The router adds `Allow`.
async fn method_not_allowed() -> Refusal {
    Code::MethodNotAllowed.refuse("The method is not allowed here; the Allow header lists those that are.")
}
