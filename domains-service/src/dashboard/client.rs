//! The API, called in the same process on behalf of whoever is signed in.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use contract::error::ErrorBody;
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::actor::Actor;
use crate::api::Operation;
use crate::app::App;

/// The API's operations.
pub(super) struct Api(Router);

/// A refusal of the API.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub(super) status: u16,
    pub(super) code: String,
    pub(super) message: String,
}

/// An answer of the API.
pub(super) struct Answered {
    pub(super) status: u16,
    pub(super) body: Value,
    /// `X-Edge-Ack`, where there is one.
    pub(super) acknowledged: Option<String>,
}

impl Answered {
    /// The body as what a page shows of it.
    pub(super) fn read<T: DeserializeOwned>(self) -> Result<T, Refused> {
        serde_json::from_value(self.body).map_err(|error| {
            tracing::error!(%error, "an answer of the API does not read as what the dashboard shows of it");
            Refused::internal()
        })
    }
}

impl Refused {
    pub(super) fn internal() -> Self {
        Self { status: 500, code: "internal_error".to_owned(), message: "Something went wrong on our side.".to_owned() }
    }
}

impl Api {
    pub(super) fn new(app: Arc<App>) -> Self {
        Self(crate::api::in_process(app))
    }

    /// Carries out an operation, with what its path names, in order. `Value::Null` is no body.
    pub(super) async fn call(
        &self,
        actor: &Actor,
        operation: &Operation,
        (named, query): (&[&str], &str),
        body: &Value,
    ) -> Result<Answered, Refused> {
        let mark = if query.is_empty() { "" } else { "?" };
        let path = format!("{}{mark}{query}", operation.path_of(named));
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let mut request = Request::new(body);
        *request.method_mut() = operation.method.as_str().parse().map_err(|_| Refused::internal())?;
        *request.uri_mut() = path.parse().map_err(|_| Refused::internal())?;
        request.extensions_mut().insert(actor.clone());
        let response = match self.0.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (head, body) = response.into_parts();
        let status = head.status;
        let acknowledged = head.headers.get("x-edge-ack").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let bytes = body.collect().await.map_err(|_| Refused::internal())?.to_bytes();
        if !status.is_success() {
            let refusal: ErrorBody = serde_json::from_slice(&bytes).map_err(|_| Refused::internal())?;
            let ErrorBody { code, message, status, .. } = refusal;
            return Err(Refused { status, code, message });
        }
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).map_err(|_| Refused::internal())?
        };
        Ok(Answered { status: status.as_u16(), body, acknowledged })
    }

    /// Reads something.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        actor: &Actor,
        operation: &Operation,
        named: &[&str],
        query: &str,
    ) -> Result<T, Refused> {
        self.call(actor, operation, (named, query), &Value::Null).await?.read()
    }
}
