//! Gateways and services on record, for operators; and the door of the gateways' part of the internal API.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chassis::guard;
use chassis::secret::Secret;
use contract::keyring::GATEWAYS_WITH_KEYS_MAX;
use contract::time::UnixMillis;
use contract::trust::{NODE_NAME_BYTES_MAX, is_node_name};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::extract::{Json, Params, Segments};
use super::view::{event_for_operators, rfc3339};
use crate::app::App;
use crate::error::{Code, Stop};
use crate::feed::Credential;
use crate::keyring::{self, NotRevoked};
use crate::store::events::{EVENTS_PER_PAGE, Through};
use crate::store::gateways::{Enrolment, GATEWAYS_MAX, Gateway, Kind, NotEnrolled};
use crate::store::{processes, projects};
use crate::worker::EVENTS_MILLIS;

/// Who follows and reports.
#[derive(Clone, Debug)]
pub(super) struct Edge(pub(super) Credential);

impl Edge {
    /// What the node that a gateway names is called here: nobody speaks for a node of another gateway.
    pub(super) fn node(&self, node: &str) -> String {
        format!("{}/{node}", self.0.gateway)
    }
}

/// Lets in gateways on record. Requests carry their [`Edge`] as an extension.
pub(super) async fn require_gateway(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    require_credential(&app, Kind::Gateway, request, next, Edge).await
}

/// Lets in who comes with a good credential of this kind. Requests carry what `who` makes of it as an extension.
pub(super) async fn require_credential<T: Clone + Send + Sync + 'static>(
    app: &App,
    kind: Kind,
    mut request: Request,
    next: Next,
    who: impl FnOnce(Credential) -> T,
) -> Response {
    let Some(token) = guard::bearer(request.headers()) else { return guard::token_required() };
    let digest = hexadecimal(guard::digest_of(token));
    match app.store.hear(kind, &digest, app.clock.now()).await {
        Ok(Some(gateway)) => {
            request.extensions_mut().insert(who(Credential { gateway, digest }));
            next.run(request).await
        }
        Ok(None) => guard::token_required(),
        Err(error) => Stop::from(error).into_response(),
    }
}

/// What is kept of a credential.
pub(crate) fn digest_of(credential: &Secret) -> String {
    hexadecimal(guard::digest_of(&credential.to_token()))
}

/// A digest as text.
pub(super) fn hexadecimal(digest: [u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
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
    if !is_node_name(&name) {
        let message = format!("Call it 1 to {NODE_NAME_BYTES_MAX} characters of a-z, 0-9, - and full stops.");
        return Err(Code::InvalidBody.refuse(message).into());
    }
    let credential = Secret::generate().map_err(|_| Code::InternalError.refuse("There is no randomness."))?;
    let mut write = app.store.write().await?;
    let digest = digest_of(&credential);
    match write.enrol(&Enrolment { kind, name: &name, digest: &digest, file: None }).await? {
        Ok(_) => {}
        Err(NotEnrolled::TooMany) => {
            let message = format!(
                "There are {GATEWAYS_MAX} on record, or {GATEWAYS_WITH_KEYS_MAX} gateways that are good, as many as there \
                 may be."
            );
            return Err(Code::GatewayExists.refuse(message).into());
        }
        // The others cannot be: the credential was made a moment ago.
        Err(_) => {
            let message = format!("There is one called {name:?}. Revoke it first, or choose another name.");
            return Err(Code::GatewayExists.refuse(message).into());
        }
    }
    write.commit().await?;
    learn(&app).await;
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
    let moment = |at: i64| rfc3339(UnixMillis(at));
    json!({
        "name": gateway.name,
        "kind": gateway.kind,
        "created_at": moment(gateway.created_at),
        "file": gateway.file,
        "last_seen_at": gateway.last_seen_at.map(moment),
        "revoked_at": gateway.revoked_at.map(moment),
    })
}

/// `DELETE /internal/gateways/{gateway}`: its credential opens nothing any more, streams are cut, identities that
/// it signs are refused, and the other gateways have new keys for session tickets. A revoked service is waited for no longer.
/// The answer names the file that the credential was enrolled from: until that file is replaced, the gateway or service that
/// has it is refused.
pub(super) async fn revoke(State(app): State<Arc<App>>, Segments([gateway]): Segments<1>) -> Result<Response, Stop> {
    let mut write = app.store.write().await?;
    let revoked = keyring::revoke(&app, &mut write, &gateway).await.map_err(|error| match error {
        NotRevoked::Unknown => Stop::from(Code::NotFound.refuse("There is no such gateway, or it is revoked already.")),
        NotRevoked::Store(error) => error.into(),
        NotRevoked::Keys(error) => {
            tracing::error!(gateway, error = format!("{error:#}"), "revoked nothing: new keys could not be made");
            Code::InternalError.refuse("Nothing was revoked: new keys could not be made. Try again.").into()
        }
    })?;
    processes::forget_processes_of(write.connection(), &gateway).await?;
    let before = write.now().plus(-EVENTS_MILLIS);
    projects::end_erasures(write.connection(), before).await?;
    write.commit().await?;
    app.nodes.revoke(&gateway);
    app.store.credential_revoked(&gateway).await;
    tracing::warn!(gateway, "a credential is revoked");
    if let Err(error) = keyring::look(&app).await {
        keyring::refuse(&app, &gateway);
        tracing::error!(
            gateway,
            error = format!("{error:#}"),
            "services accept identities of the revoked gateway until the keys of the gateways can be read again; see that \
             the database answers"
        );
        let message = "The credential is revoked. Services accept what it signs until the database answers again: look at \
                       the log of the control plane.";
        return Err(Code::StorageUnavailable.refuse(message).into());
    }
    Ok(axum::Json(json!({ "name": gateway, "file": revoked.file })).into_response())
}

/// `GET /internal/gateways/{gateway}/changes?since=`: what was changed through a gateway, in all projects, newest first. An
/// operator who revokes a stolen gateway learns here what to undo.
pub(super) async fn changes(
    State(app): State<Arc<App>>,
    Segments([gateway]): Segments<1>,
    params: Params,
) -> Result<Response, Stop> {
    let since = params.value("since", jiff::Timestamp::UNIX_EPOCH, "a moment such as 2026-01-31T12:00:00Z")?;
    let before = params.number_cursor()?;
    let since = UnixMillis(since.as_millisecond());
    let found = app.store.changes_through(&gateway, since, Some(before)).await?;
    let full = i64::try_from(found.len()).is_ok_and(|count| count == EVENTS_PER_PAGE);
    let next = found.last().filter(|_| full).map(|change| change.event.id.to_string());
    let list: Vec<_> = found.iter().map(view_of_change).collect();
    Ok(axum::Json(json!({ "changes": list, "next_cursor": next })).into_response())
}

fn view_of_change(change: &Through) -> serde_json::Value {
    let mut shown = event_for_operators(&change.event);
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("project".to_owned(), json!(change.project_name));
        fields.insert("project_uid".to_owned(), json!(change.project));
    }
    shown
}

/// Believes from now on what the gateways on record sign. A failure is put right within a second, and logged there.
async fn learn(app: &App) {
    if let Err(error) = keyring::look(app).await {
        tracing::debug!(error = format!("{error:#}"), "the keys of the gateways are read again in a second");
    }
}

/// `POST /internal/gateway-keys`: new keys for all gateways at once; those of before are worth nothing.
pub(super) async fn rotate(State(app): State<Arc<App>>) -> Result<Response, Stop> {
    keyring::renew(&app, true).await.map_err(|error| {
        tracing::error!(error = format!("{error:#}"), "the keys of the gateways could not be replaced");
        Code::StorageUnavailable.refuse("The keys of the gateways could not be replaced.")
    })?;
    learn(&app).await;
    Ok(StatusCode::NO_CONTENT.into_response())
}
