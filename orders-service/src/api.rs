//! The API, reached through the gateway only.
//!
//! Everything on this listener passes the guard first: a request the gateway did not sign learns nothing, not even
//! which paths exist.

mod cancel_order;
mod coding;
mod describe;
mod get_pet;
mod list_orders;
mod problem;
mod respond;
pub(crate) mod v2;

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::FromRef;
use axum::http::HeaderMap;
use axum::routing::{delete, get};
use axum::{Router, middleware};
use chassis::body::{self, BodyError};
use chassis::clock::Clock;
use chassis::guard::{GatewayGuard, identity_required, require_gateway};
use chassis::routes::{Routes, routed};
use contract::identity::Identity;
use contract::key::{Environment, Scope};
use contract::project::ProjectUid;
use tower_http::catch_panic::CatchPanicLayer;

use crate::access;
use crate::deprecation::Deprecation;
use crate::error::{ApiError, Code};
use crate::metrics::Metrics;
use crate::observe::{self, Observer};
use crate::store::OrderStore;

pub(crate) use describe::printed;
pub(crate) use respond::{method_not_allowed, not_found, panicked};

/// What handlers share.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) guard: GatewayGuard,
    pub(crate) store: Arc<dyn OrderStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    pub(crate) environment: Environment,
    pub(crate) pets: Arc<Deprecation>,
}

impl Api {
    /// The caller's project, if its key has the scope.
    pub(crate) fn authorise(&self, identity: &Identity, scope: Scope) -> Result<ProjectUid, ApiError> {
        access::authorise(identity, self.environment, scope)
    }

    /// The body that came with these header fields. Its gateway is checked again when the body is there: its key may be
    /// revoked meanwhile.
    pub(crate) async fn whole_body(
        &self,
        headers: &HeaderMap,
        body: Body,
        bytes_max: usize,
    ) -> Result<Bytes, ApiError> {
        let bytes = body::bytes(headers, body, bytes_max).await.map_err(of_body)?;
        if self.guard.identity_of(headers).is_none() {
            return Err(identity_required().into());
        }
        Ok(bytes)
    }
}

fn of_body(error: BodyError) -> ApiError {
    let code = match error {
        BodyError::TooLarge(_) => Code::BodyTooLarge,
        BodyError::Late => Code::RequestTimeout,
        BodyError::Broken => Code::InvalidBody,
    };
    code.because(error.to_string())
}

impl FromRef<Api> for Observer {
    fn from_ref(api: &Api) -> Self {
        Self { metrics: api.metrics.clone(), clock: api.clock.clone() }
    }
}

fn of_orders() -> Routes<Api> {
    vec![
        ("/v1/store/orders", get(list_orders::list_orders)),
        ("/v1/store/orders/{orderId}", delete(cancel_order::cancel_order)),
    ]
}

fn of_pets() -> Routes<Api> {
    vec![("/v1/pets/{petId}", get(get_pet::get_pet))]
}

/// Every path of the API.
pub(crate) fn paths() -> Vec<&'static str> {
    [of_orders(), of_pets(), v2::routes(), describe::routes()].into_iter().flatten().map(|(path, _)| path).collect()
}

/// The router of the API's listener.
pub(crate) fn router(api: Api) -> Router {
    let (observer, guard) = (Observer::from_ref(&api), api.guard.clone());
    let pets = routed(of_pets())
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(api.clone(), get_pet::deprecated));
    routed(of_orders())
        .merge(pets)
        .merge(v2::router())
        .merge(describe::router())
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn(problem::on_request))
        .layer(middleware::from_fn(coding::compressed))
        .layer(middleware::from_fn(observe::name))
        .layer(middleware::from_fn_with_state(guard, require_gateway))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(observer, observe::observe))
        .with_state(api)
}
