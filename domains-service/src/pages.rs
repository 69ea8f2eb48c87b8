//! Implements the dashboard's interface to the control plane.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use chassis::seal::SealingKey;
use contract::error::ErrorBody;
use contract::project::ProjectId;
use contract::time::UnixMillis;
use http::Extensions;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::actor::{Actor, Origin};
use crate::api::{self, callers};
use crate::app::App;
use crate::error::ApiError;
use crate::project::ProjectRef;
use crate::sessions;
use dashboard::{Answered, ControlPlane, NewSession, NotSignedIn, Refused, SignedIn};
use domains_api::Operation;

/// The service, as the pages see it.
pub(crate) struct Pages {
    app: App,
    /// The API, without its listener.
    api: Router,
}

impl Pages {
    pub(crate) fn of(app: App) -> Arc<Self> {
        Arc::new(Self { api: api::in_process(app.clone()), app })
    }
}

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        refused(error.0.body().clone())
    }
}

fn refused(ErrorBody { status, code, message, .. }: ErrorBody) -> Refused {
    Refused { status, code, message }
}

#[async_trait]
impl ControlPlane for Pages {
    fn now(&self) -> UnixMillis {
        self.app.core.clock.now()
    }

    fn sealing(&self) -> &SealingKey {
        &self.app.core.sealing
    }

    fn origin(&self, extensions: &Extensions) -> Option<Origin> {
        callers::origin(&self.app.gateways, extensions)
    }

    async fn call(
        &self,
        actor: &Actor,
        operation: Operation,
        (named, query): (&[&str], &str),
        body: &Value,
    ) -> Result<Answered, Refused> {
        let operation = api::named(operation).ok_or_else(Refused::internal)?;
        let mark = if query.is_empty() { "" } else { "?" };
        let path = format!("{}{mark}{query}", operation.path_of(named));
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let mut request = Request::new(body);
        *request.method_mut() = operation.method.as_str().parse().map_err(|_| Refused::internal())?;
        *request.uri_mut() = path.parse().map_err(|_| Refused::internal())?;
        request.extensions_mut().insert(actor.clone());
        let Ok(response) = self.api.clone().oneshot(request).await;
        let (head, body) = response.into_parts();
        let acknowledged = head.headers.get("x-edge-ack").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let bytes = body.collect().await.map_err(|_| Refused::internal())?.to_bytes();
        if !head.status.is_success() {
            return Err(serde_json::from_slice(&bytes).map_or_else(|_| Refused::internal(), refused));
        }
        let bytes: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        let body = serde_json::from_slice(bytes).map_err(|_| Refused::internal())?;
        Ok(Answered { status: head.status.as_u16(), body, acknowledged })
    }

    async fn sign_in(&self, key: &str, origin: Origin) -> Result<(ProjectRef, NewSession), NotSignedIn> {
        sessions::sign_in(&self.app.api, key, origin).await
    }

    async fn follow_link(&self, link: &str, origin: Origin) -> Result<NewSession, NotSignedIn> {
        sessions::follow_link(&self.app.api, link, origin).await
    }

    async fn find_session(&self, secret: &str, origin: Origin, by_itself: bool) -> Result<Option<SignedIn>, Refused> {
        Ok(sessions::find(&self.app.api, secret, origin, by_itself).await?)
    }

    async fn end_session(&self, session: &SignedIn, everywhere: bool) -> Result<(), Refused> {
        let key = session.holder.as_ref().map(|(_, key)| key);
        Ok(self.app.core.store.end_sessions(&session.id, key, everywhere).await.map_err(ApiError::from)?)
    }

    async fn in_project(&self, operator: Actor, project: &ProjectId) -> Result<Actor, Refused> {
        let found = self.app.core.store.project_named(project).await.map_err(ApiError::from)?;
        Ok(operator.within(found))
    }
}
