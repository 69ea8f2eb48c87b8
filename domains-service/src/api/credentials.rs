//! Credentials of gateways, services and operators: list, create, revoke.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::on;
use chassis::guard;
use chassis::openapi::Method;
use chassis::secret::Secret;
use contract::time::UnixMillis;
use contract::trust::{NODE_NAME_BYTES_MAX, PASSES_PATH, Pass, PassFor, is_node_name};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::Operation;
use super::extract::{Json, Params, Path};
use super::view::{event_for_operators, page, rfc3339};
use crate::common::Core;
use crate::error::{ApiError, ApiResult, Code};
use crate::gateways::Gateways;
use crate::keyring;
use crate::store::credentials::{COMMAND_LINE, Credential, Enrolment, Kind, NotEnrolled, Origin, Recorded};
use crate::store::events::{EVENTS_PER_PAGE, Through};
use crate::store::projects;
use crate::text::digest_of;
use crate::worker::EVENTS_MILLIS;

/// Operations on credentials, for operators.
pub(super) const OPERATIONS: &[Operation] = &[
    Operation::internal("listCredentials", Method::Get, "/internal/credentials", |get| on(get, list)),
    Operation::internal("createCredential", Method::Post, "/internal/credentials", |post| on(post, create)),
    Operation::internal("revokeCredential", Method::Delete, "/internal/credentials/{kind}/{name}", |delete| {
        on(delete, revoke)
    }),
    Operation::internal(
        "listChangesThroughGateway",
        Method::Get,
        "/internal/credentials/gateway/{gateway}/changes",
        |get| on(get, changes),
    ),
    Operation::internal("rotateGatewayKeys", Method::Post, "/internal/gateway-keys", |post| on(post, rotate)),
    Operation::internal("makePass", Method::Post, PASSES_PATH, |post| on(post, pass)),
];

/// The usual and the maximum lifetime of an operator's token.
const DAYS: u32 = 90;
const DAYS_MAX: u32 = 366;

const DAY_MILLIS: i64 = 86_400_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewCredential {
    kind: Kind,
    name: String,
    days: Option<u32>,
}

impl NewCredential {
    /// Its lifetime in days; `None` for gateways and services, whose credentials do not expire.
    fn days(&self) -> ApiResult<Option<u32>> {
        if !is_node_name(&self.name) {
            let message = format!("Use 1 to {NODE_NAME_BYTES_MAX} characters of a-z, 0-9, - and full stops.");
            return Code::InvalidBody.fail(message);
        }
        match (self.kind, self.days) {
            (Kind::Operator, days) if (1..=DAYS_MAX).contains(&days.unwrap_or(DAYS)) => Ok(Some(days.unwrap_or(DAYS))),
            (Kind::Gateway | Kind::Service, None) => Ok(None),
            _ => Code::InvalidBody.fail(format!(
                "An operator's token is valid for 1 to {DAYS_MAX} days; other credentials never expire."
            )),
        }
    }
}

/// `POST /internal/credentials`: the response has the new credential, in the form of a file and of a header. It is
/// shown nowhere else.
async fn create(
    State(gateways): State<Arc<Gateways>>,
    Extension(maker): Extension<Credential>,
    Json(wanted): Json<NewCredential>,
) -> ApiResult {
    let days = wanted.days()?;
    let NewCredential { kind, name, .. } = wanted;
    let credential = Secret::generate().map_err(|_| Code::InternalError.refuse("Cannot generate a secret."))?;
    let mut write = gateways.core.store.write().await?;
    write.confirm(&maker).await?;
    let expires_at = days.map(|days| write.now().plus(i64::from(days) * DAY_MILLIS));
    let (digest, from) = (digest_of(&credential), Origin::Maker(&maker.digest));
    let enrolled = write.enrol(&Enrolment { kind, name: &name, digest: &digest, expires_at, from }).await?;
    enrolled.map_err(|why| {
        Code::CredentialExists.refuse(match why {
            NotEnrolled::TooMany => "The maximum of credentials of this kind is reached. Revoke one first.".to_owned(),
            // The others cannot be: the credential was made a moment ago.
            _ => format!("The credential {name:?} exists. Revoke it first, or choose another name."),
        })
    })?;
    write.commit().await?;
    learn(&gateways).await;
    tracing::info!(kind = kind.as_str(), name, actor = maker.name, "created a credential");
    let body = json!({
        "kind": kind,
        "name": name,
        "credential": &*credential.to_text(),
        "token": &*credential.to_token(),
        "expires_at": expires_at.map(rfc3339),
    });
    Ok((StatusCode::CREATED, axum::Json(body)).into_response())
}

/// `GET /internal/credentials?kind=`: all of them, or those of one kind.
async fn list(State(core): State<Arc<Core>>, params: Params) -> ApiResult {
    let kind = params.text("kind").map(str::parse).transpose().map_err(|_| no_kind())?;
    let all: Vec<_> = core.store.credentials(kind).await?.iter().map(view).collect();
    Ok(axum::Json(json!({ "credentials": all })).into_response())
}

fn no_kind() -> ApiError {
    Code::InvalidQuery.refuse(format!("A kind is one of: {}.", Kind::WORDS.join(", "))).into()
}

fn view(recorded: &Recorded) -> serde_json::Value {
    let Credential { kind, name, expires_at, .. } = &recorded.credential;
    json!({
        "kind": kind,
        "name": name,
        "file": recorded.file,
        "made_by": recorded.made_by.as_ref().or(recorded.file.as_ref()),
        "created_at": rfc3339(recorded.created_at),
        "expires_at": expires_at.map(rfc3339),
        "last_used_at": recorded.last_used_at.map(rfc3339),
        "revoked_at": recorded.revoked_at.map(rfc3339),
    })
}

/// `DELETE /internal/credentials/{kind}/{name}?made=true`: revokes a credential. Streams of a gateway are closed,
/// identities that it signs are refused, and the other gateways have new keys for session tickets; a service is waited
/// for no longer.
///
/// With `made`, credentials that it created are revoked as well, and those that they created. Without, the response
/// lists them. It names the files that revoked credentials were enrolled from: until such a file is replaced, the
/// gateway or service that has it is refused.
///
/// It may be repeated, with the same response: nothing is lost if a response did not arrive, or was 503 because not
/// everything had followed the revocation yet.
async fn revoke(
    State(core): State<Arc<Core>>,
    State(gateways): State<Arc<Gateways>>,
    Extension(actor): Extension<Credential>,
    Path([kind, name]): Path<2>,
    params: Params,
) -> ApiResult {
    let kind: Kind = kind.parse().map_err(|_| no_kind())?;
    let with_made: bool = params.value("made", false, "true or false")?;
    if kind == Kind::Operator && name == COMMAND_LINE {
        let message = "The command line's credential derives from the platform's secret: replace the secret and restart the control plane.";
        return Code::CommandLineCredential.fail(message);
    }
    let mut write = core.store.write().await?;
    write.confirm(&actor).await?;
    let mut revoked: Vec<_> = write.last_credential(kind, &name).await?.into_iter().collect();
    if revoked.is_empty() {
        return Code::NotFound.fail(format!("There is no {} called {name:?}.", kind.as_str()));
    }
    let mut made = write.made_by(kind, &name, with_made).await?;
    if with_made {
        revoked.append(&mut made);
    }
    let mut ended = Vec::new();
    for one in revoked.iter_mut().filter(|one| one.revoked_at.is_none()) {
        write.revoke(&one.credential).await?;
        one.revoked_at = Some(write.now());
        ended.push(one.credential.clone());
    }
    let revoked_gateways = ended.iter().filter(|one| one.kind == Kind::Gateway).map(|one| one.name.as_str());
    let revoked_gateways: Vec<_> = revoked_gateways.collect();
    if !revoked_gateways.is_empty() {
        keyring::replace_tickets(&core, &mut write).await?;
    }
    let before = write.now().plus(-EVENTS_MILLIS);
    projects::end_erasures(write.connection(), before).await?;
    write.commit().await?;
    for gateway in &revoked_gateways {
        gateways.nodes.revoke(gateway);
    }
    let digests: Vec<_> = ended.iter().map(|one| one.digest.as_str()).collect();
    core.store.credentials_revoked(&digests).await;
    for Credential { kind, name, .. } in &ended {
        tracing::warn!(kind = kind.as_str(), name, actor = actor.name, "revoked a credential");
    }
    forget_signatures(&gateways, &revoked_gateways).await?;
    if let Err(error) = core.store.record_revocations().await {
        tracing::error!(
            error = format!("{error:#}"),
            "cannot write a revocation into revocations_file; retrying every second. Fix the cause given in `error`"
        );
        let message = "The credential is revoked, but the revocation could not be written to revocations_file: restoring \
            an older database would make the credential valid again. Fix the problem with the file that `tollhouse status` \
            shows, then revoke the credential again; the response confirms it and lists the credentials that it created. \
            `tollhouse node changes NAME` lists the changes made through a gateway.";
        return Code::StorageUnavailable.fail(message);
    }
    let shown = |all: &[Recorded]| all.iter().map(view).collect::<Vec<_>>();
    Ok(axum::Json(json!({ "revoked": shown(&revoked), "made": shown(&made) })).into_response())
}

/// Refuses identities that these gateways sign, from now on.
async fn forget_signatures(gateways: &Gateways, revoked: &[&str]) -> ApiResult<()> {
    if revoked.is_empty() {
        return Ok(());
    }
    let Err(error) = keyring::rotate_if_due(gateways).await else { return Ok(()) };
    for gateway in revoked {
        keyring::refuse(gateways, gateway);
    }
    tracing::error!(
        gateways = revoked.join(", "),
        error = format!("{error:#}"),
        "cannot read the gateways' signing keys; services still accept the revoked identities. Check the database"
    );
    let message = "The credential is revoked, but services accept its identity tokens until the database answers again. \
                   See the log of the control plane.";
    Code::StorageUnavailable.fail(message)
}

/// `GET /internal/credentials/gateway/{gateway}/changes?since=`: the changes made through a gateway, in all projects,
/// newest first. They show an operator who revokes a stolen gateway what to undo.
async fn changes(State(core): State<Arc<Core>>, Path([gateway]): Path<1>, params: Params) -> ApiResult {
    let since = params.value("since", jiff::Timestamp::UNIX_EPOCH, "a moment such as 2026-01-31T12:00:00Z")?;
    let before = params.number_cursor()?;
    let since = UnixMillis(since.as_millisecond());
    let found = core.store.changes_through(&gateway, since, Some(before)).await?;
    let (list, next) = page(&found, EVENTS_PER_PAGE, |change| change.event.id.to_string(), view_of_change);
    Ok(axum::Json(json!({ "changes": list, "next_cursor": next })).into_response())
}

fn view_of_change(change: &Through) -> serde_json::Value {
    let mut shown = event_for_operators(change);
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("project".to_owned(), json!(change.project_name));
        fields.insert("project_uid".to_owned(), json!(change.project));
    }
    shown
}

/// Reloads the signing keys of all gateways. After a failure, [`keyring::keep`] retries within a second and logs.
async fn learn(gateways: &Gateways) {
    if let Err(error) = keyring::rotate_if_due(gateways).await {
        tracing::debug!(
            error = format!("{error:#}"),
            "cannot read the signing keys of the gateways; retrying in a second"
        );
    }
}

/// `POST /internal/gateway-keys`: new keys for all gateways at once; those of before are worth nothing.
async fn rotate(State(gateways): State<Arc<Gateways>>, Extension(actor): Extension<Credential>) -> ApiResult {
    keyring::renew(&gateways.core, true).await.map_err(|error| {
        tracing::error!(
            error = format!("{error:#}"),
            "cannot replace the signing keys of the gateways; the previous keys stay valid"
        );
        Code::StorageUnavailable
            .refuse("Cannot replace the signing keys of the gateways; the previous keys stay valid. Retry shortly.")
    })?;
    learn(&gateways).await;
    tracing::warn!(actor = actor.name, "replaced the signing keys of all gateways");
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST /internal/passes`: the operator's way into one service or one gateway, for less than a minute. The operator's
/// own token stays here: a service or a gateway in wrong hands that was shown it could use it.
async fn pass(
    State(gateways): State<Arc<Gateways>>,
    Extension(actor): Extension<Credential>,
    Json(to): Json<PassFor>,
) -> ApiResult {
    if !is_node_name(to.name()) {
        let message = "Name a service, {\"service\": \"orders-service\"}, or a gateway, {\"gateway\": \"gateway-1\"}.";
        return Code::InvalidBody.fail(message);
    }
    tracing::info!(actor = actor.name, to = to.audience(), "issued a pass to an operator");
    let pass = guard::pass(&gateways.pass_key, &to, gateways.core.clock.now_seconds());
    Ok((StatusCode::CREATED, axum::Json(Pass { pass })).into_response())
}
