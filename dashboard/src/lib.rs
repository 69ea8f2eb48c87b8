//! The dashboard: the API's operations as pages, at `dashboard.{platform_domain}`.
//!
//! Server-rendered pages that work without script; a small script copies values and exchanges the part of a page that
//! has changed. The pages are a client of the API in the same process ([`ControlPlane`]): they can do only what the
//! API can do, and they show its refusals unchanged. The dashboard has its own sessions (`session`), because the edge
//! serves its host without a key; the control plane stores them. Words that occur once are in the templates; words that
//! several pages share, or that depend on a value, are in `words`.
//!
//! Without the database, pages answer 503, and sessions stay valid.

mod control_plane;
mod words;
mod moment;
mod digest;
mod fault;
mod session;
mod assets;
mod shell;
mod explain;
mod recognise;
mod form;
mod once;
mod activity;
mod domains;
mod live;
mod keys;
mod usage;
mod webhooks;
mod operator;
mod sign_in;

use std::sync::Arc;

use axum::extract::Request;
use axum::middleware;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use chassis::guard::{GatewayGuard, require_gateway};
use chassis::shares::Shares;
use chassis::shutdown::Shutdown;
use contract::hostname::Hostname;
use http::header;
use tower::ServiceExt as _;

pub use control_plane::{Answered, ControlPlane, NewSession, NotSignedIn, Refused, SignedIn};
use fault::Fault;

/// The label of the dashboard below the platform's domain.
pub const LABEL: &str = "dashboard";

/// Pages that get events of changes at the same time; others reload periodically.
const WATCHERS_MAX: usize = 256;

/// How many of them one project's people, or one operator's session, may have.
const WATCHERS_OF_ONE_MAX: usize = 32;

/// The state that all pages share.
struct Dashboard {
    control_plane: Arc<dyn ControlPlane>,
    watchers: Arc<Shares>,
    shutdown: Shutdown,
}

/// The public listener: the dashboard at its own host, the API at every other.
pub fn beside(api: Router, dashboard: Router, platform: &Hostname) -> Router {
    let host = format!("{LABEL}.{platform}");
    Router::new().fallback(move |request: Request| {
        let named = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        let is_ours = named.and_then(|named| named.split(':').next()).is_some_and(|named| named == host);
        let router = if is_ours { dashboard.clone() } else { api.clone() };
        async move {
            let answered: Result<Response, std::convert::Infallible> = router.oneshot(request).await;
            answered
        }
    })
}

/// The pages; every request must carry the gateway's signature.
pub fn router(control_plane: Arc<dyn ControlPlane>, guard: GatewayGuard, shutdown: Shutdown) -> Router {
    let watchers = Shares::new(WATCHERS_MAX, WATCHERS_OF_ONE_MAX);
    let dashboard = Arc::new(Dashboard { control_plane, watchers, shutdown });
    Router::new()
        .route("/", get(sign_in::home))
        .route("/sign-in", get(sign_in::show).post(sign_in::sign_in))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/enter", get(operator::enter).post(operator::entered))
        .route("/operator", get(operator::overview))
        .route("/operator/projects", get(operator::projects))
        .route("/assets/{file}", get(assets::serve))
        .nest("/projects/{project}", of_one_project(dashboard.clone()))
        .fallback(async || Fault::nothing_here())
        .method_not_allowed_fallback(async || Fault::nothing_here())
        .layer(middleware::from_fn(form::same_origin))
        .layer(middleware::from_fn(explain::explain))
        .layer(middleware::from_fn_with_state(dashboard.clone(), recognise::recognise))
        .layer(middleware::from_fn_with_state(dashboard.clone(), recognise::came_through))
        .layer(middleware::from_fn(form::whole))
        .layer(middleware::from_fn_with_state(guard, require_gateway))
        .layer(middleware::map_response(assets::secure))
        .layer(Extension(dashboard.clone()))
        .with_state(dashboard)
}

fn of_one_project(dashboard: Arc<Dashboard>) -> Router<Arc<Dashboard>> {
    Router::new()
        .merge(domains::routes())
        .merge(keys::routes())
        .merge(webhooks::routes())
        .route("/live", get(live::watch))
        .route("/usage", get(usage::show))
        .route("/activity", get(activity::show))
        .route_layer(middleware::from_fn_with_state(dashboard, recognise::find_project))
}
