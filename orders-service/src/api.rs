//! The API. Clients reach it through the gateway.
//!
//! Every request on this listener passes the guard first: a request without the gateway's signature is refused and does
//! not learn which paths exist.

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
use axum::{Router, middleware};
use chassis::body::{self, BodyError};
use chassis::clock::Clock;
use chassis::guard::{GatewayGuard, identity_required, require_gateway};
use chassis::openapi;
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

pub(crate) use describe::documents;
pub(crate) use respond::{method_not_allowed, not_found, panicked};

/// One operation of the API.
pub(crate) type Operation = openapi::Operation<Api, Code>;

/// Every operation of the API. The router, the metrics and the interface descriptions come from this list.
pub(crate) const OPERATIONS: &[Operation] = &[
    list_orders::OPERATION,
    cancel_order::OPERATION,
    get_pet::OPERATION,
    v2::list_orders::OPERATION,
    v2::create_order::OPERATION,
    v2::get_order::GET,
    v2::get_order::CANCEL,
    v2::get_order::SHIP,
    v2::get_order::HISTORY,
];

/// The OpenAPI field that marks deprecated operations.
const DEPRECATED: &str = "deprecated";

/// The state of the handlers.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) guard: GatewayGuard,
    pub(crate) store: Arc<OrderStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    pub(crate) environment: Environment,
    pub(crate) pets: Arc<Deprecation>,
}

impl Api {
    /// Returns the caller's project if the key has the scope.
    pub(crate) fn authorise(&self, identity: &Identity, scope: Scope) -> Result<ProjectUid, ApiError> {
        access::authorise(identity, self.environment, scope)
    }

    /// Reads the body and then checks the gateway's signature again: the gateway can be revoked while the body arrives.
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
        Self { metrics: api.metrics.clone(), clock: api.clock.clone(), label }
    }
}

/// The name of each operation, and whether it is deprecated.
pub(crate) fn names() -> impl Iterator<Item = (&'static str, bool)> {
    OPERATIONS.iter().map(|operation| (operation.id, operation.has_extension(DEPRECATED)))
}

/// The name of an operation in metrics.
fn label(method: &str, pattern: &str) -> Option<&'static str> {
    openapi::label(OPERATIONS, method, pattern)
}

/// Every operation of the API, with those that serve its description.
pub(crate) fn all() -> impl Iterator<Item = &'static Operation> {
    OPERATIONS.iter().chain(describe::DESCRIPTIONS)
}

/// A router of the operations with this mark; with an empty mark, of the operations that are neither deprecated nor
/// beta.
fn marked(mark: &str) -> Router<Api> {
    let fits = |operation: &&Operation| match mark {
        "" => !(operation.has_extension(DEPRECATED) || operation.has_extension(v2::STABILITY)),
        extension => operation.has_extension(extension),
    };
    openapi::routed(all().filter(fits), str::to_owned).method_not_allowed_fallback(method_not_allowed)
}

/// The router of the API's listener.
pub(crate) fn router(api: Api) -> Router {
    let (observer, guard) = (Observer::from_ref(&api), api.guard.clone());
    marked("")
        .merge(marked(DEPRECATED).layer(middleware::from_fn_with_state(api.clone(), get_pet::deprecated)))
        .merge(marked(v2::STABILITY).layer(middleware::from_fn(v2::beta)))
        .fallback(not_found)
        .layer(middleware::from_fn(problem::on_request))
        .layer(middleware::from_fn(coding::compressed))
        .layer(middleware::from_fn(observe::name))
        .layer(middleware::from_fn_with_state(guard, require_gateway))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(observer, observe::observe))
        .with_state(api)
}
