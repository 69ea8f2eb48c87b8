//! Gateways and services on record, for operators; and the door of the gateways' part of the internal API.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chassis::guard::{self, Openers};
use chassis::secret::Secret;
use contract::trust::GATEWAYS;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::extract::{Json, Segments};
use super::view::rfc3339;
use crate::app::App;
use crate::error::{Code, Stop};
use crate::feed::Credential;
use crate::keyring;
use crate::store::gateways::{Enrolment, GATEWAYS_MAX, Gateway, Kind, NotEnrolled};
use crate::store::{processes, projects};
use crate::worker::EVENTS_MILLIS;

/// The longest name of a gateway on record.
const NAME_BYTES_MAX: usize = 63;

/// Who follows and reports: a gateway on record, or one with the platform's secret.
#[derive(Clone, Debug)]
pub(super) struct Edge(pub(super) Option<Credential>);

impl Edge {
    /// What the node that a gateway names is called here: nobody speaks for a node of another gateway.
    pub(super) fn node(&self, node: &str) -> String {
        self.0.as_ref().map_or_else(|| node.to_owned(), |credential| format!("{}/{node}", credential.gateway))
    }
}

/// What opens the gateways' part.
#[derive(Clone)]
pub(super) struct EdgeDoor {
    pub(super) app: Arc<App>,
    /// Of gateways with the platform's secret.
    pub(super) shared: Openers,
}

/// Lets in gateways on record, and those with the platform's secret. Requests carry their [`Edge`] as an extension.
pub(super) async fn require_gateway(State(door): State<EdgeDoor>, mut request: Request, next: Next) -> Response {
    let Some(token) = guard::bearer(request.headers()) else { return guard::token_required() };
    let (is_shared, digest) = (door.shared.opens(token), hexadecimal(guard::digest_of(token)));
    let edge = if is_shared {
        Edge(None)
    } else {
        match door.app.store.hear(Kind::Gateway, &digest, door.app.clock.now()).await {
            Ok(Some(gateway)) => Edge(Some(Credential { gateway, digest })),
            Ok(None) => return guard::token_required(),
            Err(error) => return Stop::from(error).into_response(),
        }
    };
    request.extensions_mut().insert(edge);
    next.run(request).await
}

/// What is kept of a credential.
pub(crate) fn digest_of(credential: &Secret) -> String {
    hexadecimal(guard::digest_of(&credential.to_token()))
}

/// A digest as text.
pub(super) fn hexadecimal(digest: [u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a gateway or a service may be called this: letters, digits, hyphens and full stops.
pub(crate) fn is_name(name: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_good)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewGateway {
    name: String,
    #[serde(default)]
    kind: Kind,
}

/// `POST /internal/gateways`: the credential is in this answer and nowhere else.
pub(super) async fn create(State(app): State<Arc<App>>, Json(wanted): Json<NewGateway>) -> Result<Response, Stop> {
    let NewGateway { name, kind } = wanted;
    if name == GATEWAYS {
        return Err(Code::InvalidBody
            .refuse(format!("{GATEWAYS:?} stands for all gateways; choose another name."))
            .into());
    }
    if !is_name(&name) {
        let message = format!("Call it 1 to {NAME_BYTES_MAX} characters of a-z, 0-9, - and full stops.");
        return Err(Code::InvalidBody.refuse(message).into());
    }
    let credential = Secret::generate().map_err(|_| Code::InternalError.refuse("There is no randomness."))?;
    let mut write = app.store.write().await?;
    let digest = digest_of(&credential);
    match write.enrol(&Enrolment { kind, name: &name, digest: &digest, file: None }).await? {
        Ok(_) => {}
        Err(NotEnrolled::TooMany) => {
            let message = format!("There are {GATEWAYS_MAX} on record, as many as there may be.");
            return Err(Code::GatewayExists.refuse(message).into());
        }
        // The others cannot be: the credential was made a moment ago.
        Err(_) => {
            let message = format!("There is one called {name:?}. Revoke it first, or choose another name.");
            return Err(Code::GatewayExists.refuse(message).into());
        }
    }
    write.commit().await?;
    tracing::info!(gateway = name, kind = kind.as_str(), "a credential was made");
    let body = json!({ "name": name, "kind": kind, "credential": &*credential.to_text() });
    Ok((StatusCode::CREATED, axum::Json(body)).into_response())
}

/// `GET /internal/gateways`.
pub(super) async fn list(State(app): State<Arc<App>>) -> Result<Response, Stop> {
    let gateways: Vec<_> = app.store.gateways().await?.iter().map(view).collect();
    Ok(axum::Json(json!({ "gateways": gateways })).into_response())
}

fn view(gateway: &Gateway) -> serde_json::Value {
    let moment = |at: i64| rfc3339(contract::time::UnixMillis(at));
    json!({
        "name": gateway.name,
        "kind": gateway.kind,
        "created_at": moment(gateway.created_at),
        "file": gateway.file,
        "last_seen_at": gateway.last_seen_at.map(moment),
        "revoked_at": gateway.revoked_at.map(moment),
    })
}

/// `DELETE /internal/gateways/{gateway}`: its credential opens nothing any more, streams end within a second, and the
/// other gateways are given new keys. A revoked service is waited for no longer. The answer names the file that the
/// credential was enrolled from: until that file is replaced, the gateway or service in it is refused.
pub(super) async fn revoke(State(app): State<Arc<App>>, Segments([gateway]): Segments<1>) -> Result<Response, Stop> {
    let mut write = app.store.write().await?;
    let Some(revoked) = write.revoke_gateway(&gateway).await? else {
        return Err(Code::NotFound.refuse("There is no such gateway, or it is revoked already.").into());
    };
    processes::forget_processes_of(write.connection(), &gateway).await?;
    let before = write.now().plus(-EVENTS_MILLIS);
    projects::end_erasures(write.connection(), before).await?;
    write.commit().await?;
    app.nodes.revoke(&gateway);
    tracing::warn!(gateway, "a credential is revoked");
    keyring::renew(&app, true).await.map_err(|error| {
        tracing::error!(error = format!("{error:#}"), "the keys that the gateway had are still in force");
        let message = "The credential is revoked, but the keys that the gateway had could not be replaced. Try: \
                       tollhouse node rotate";
        Code::StorageUnavailable.refuse(message)
    })?;
    Ok(axum::Json(json!({ "name": gateway, "file": revoked.file })).into_response())
}

/// `POST /internal/gateway-keys`: new keys for all gateways at once; those of before are worth nothing.
pub(super) async fn rotate(State(app): State<Arc<App>>) -> Result<Response, Stop> {
    keyring::renew(&app, true).await.map_err(|error| {
        tracing::error!(error = format!("{error:#}"), "the keys of the gateways could not be replaced");
        Code::StorageUnavailable.refuse("The keys of the gateways could not be replaced.")
    })?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
