//! Operators' tokens, and the door of the operators' API.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chassis::guard;
use chassis::secret::Secret;
use contract::trust::{Pass, PassFor, is_node_name};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::extract::{Json, Segments};
use super::gateways::{digest_of, hexadecimal};
use super::view::rfc3339;
use crate::actor::Actor;
use crate::app::App;
use crate::error::{Code, Stop};
use crate::store::operators::TOKENS_MAX;

/// How long a token is good, unless said otherwise, and at most.
const DAYS: u32 = 90;
const DAYS_MAX: u32 = 366;

const DAY_MILLIS: i64 = 86_400_000;

/// What opens the operators' API.
#[derive(Clone)]
pub(super) struct OperatorDoor {
    pub(super) app: Arc<App>,
    /// SHA-256 of the command line's token, which derives from the platform's secret.
    pub(super) command_line: [u8; 32],
}

/// Lets in the command line and operators with a token. Requests carry the [`Actor`] that the audit log names.
pub(super) async fn require_operator(State(door): State<OperatorDoor>, mut request: Request, next: Next) -> Response {
    let Some(token) = guard::bearer(request.headers()) else { return guard::token_required() };
    // Digests are compared, so time tells nothing of the token.
    let digest = guard::digest_of(token);
    let actor = if digest == door.command_line {
        Actor::operator()
    } else {
        match door.app.store.hear_operator(&hexadecimal(digest), door.app.clock.now()).await {
            Ok(Some(name)) => Actor::operator_named(&name),
            Ok(None) => return guard::token_required(),
            Err(error) => return Stop::from(error).into_response(),
        }
    };
    request.extensions_mut().insert(actor);
    next.run(request).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewToken {
    name: String,
    days: Option<u32>,
}

/// `POST /internal/operator-tokens`: the token is in this answer and nowhere else.
pub(super) async fn create(State(app): State<Arc<App>>, Json(wanted): Json<NewToken>) -> Result<Response, Stop> {
    let NewToken { name, days } = wanted;
    let days = days.unwrap_or(DAYS);
    if !is_node_name(&name) || !(1..=DAYS_MAX).contains(&days) {
        let message =
            format!("A token has a name of a-z, 0-9, - and full stops, and is good for 1 to {DAYS_MAX} days.");
        return Err(Code::InvalidBody.refuse(message).into());
    }
    let token = Secret::generate().map_err(|_| Code::InternalError.refuse("There is no randomness."))?;
    let mut write = app.store.write().await?;
    let expires_at = write.now().plus(i64::from(days) * DAY_MILLIS);
    if !write.add_operator(&name, &digest_of(&token), expires_at).await? {
        let message = format!("There is a token {name:?}, or there are {TOKENS_MAX}. Revoke one first.");
        return Err(Code::TokenExists.refuse(message).into());
    }
    write.commit().await?;
    tracing::info!(operator = name, "an operator has a token");
    let body = json!({ "name": name, "token": &*token.to_token(), "expires_at": rfc3339(expires_at) });
    Ok((StatusCode::CREATED, axum::Json(body)).into_response())
}

/// `GET /internal/operator-tokens`.
pub(super) async fn list(State(app): State<Arc<App>>) -> Result<Response, Stop> {
    let tokens = app.store.operator_tokens().await?;
    let view = tokens.iter().map(|token| {
        json!({
            "name": token.name,
            "created_at": rfc3339(token.created_at),
            "expires_at": rfc3339(token.expires_at),
            "last_used_at": token.last_used_at.map(rfc3339),
        })
    });
    Ok(axum::Json(json!({ "tokens": view.collect::<Vec<_>>() })).into_response())
}

/// `DELETE /internal/operator-tokens/{operator}`.
pub(super) async fn revoke(State(app): State<Arc<App>>, Segments([name]): Segments<1>) -> Result<Response, Stop> {
    let mut write = app.store.write().await?;
    if !write.remove_operator(&name).await? {
        return Err(Code::NotFound.refuse("There is no such token.").into());
    }
    write.commit().await?;
    tracing::warn!(operator = name, "an operator's token is revoked");
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST /internal/passes`: the operator's way into one service or one gateway, for less than a minute. The operator's own token
/// stays here: a service or a gateway in wrong hands that was shown it could use it.
pub(super) async fn pass(
    State(app): State<Arc<App>>,
    Extension(actor): Extension<Actor>,
    Json(to): Json<PassFor>,
) -> Result<Response, Stop> {
    if !is_node_name(to.name()) {
        let message = "Name a service, {\"service\": \"orders-service\"}, or a gateway, {\"gateway\": \"gateway-1\"}.";
        return Err(Code::InvalidBody.refuse(message).into());
    }
    tracing::info!(operator = actor.name(), to = to.audience(), "an operator has a pass");
    let pass = guard::pass(&app.pass_key, &to, app.clock.now_seconds());
    Ok((StatusCode::CREATED, axum::Json(Pass { pass })).into_response())
}
