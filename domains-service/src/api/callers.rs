//! Authentication: on the public listener of the gateway that forwarded a request and of the holder of the key that the
//! client presented, on the internal listener of the holder of a credential.
//!
//! A gateway's signed identity proves only that a request came through that gateway. The project of a key, its scopes
//! and its end are read from our own table. So a stolen gateway can act only as keys that pass through it.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chassis::guard::{self, SignedBy, identity_required};
use contract::identity::Identity;
use contract::key::PresentedKey;
use http::{Extensions, HeaderMap, header};

use crate::actor::{Actor, Origin};
use crate::common::Core;
use crate::error::{ApiError, ApiResult, Code};
use crate::gateways::Gateways;
use crate::store::credentials::Kind;
use crate::text::hexadecimal;

/// The form in which a key is sent: RFC 6750.
const CHALLENGE: &str = r#"Bearer realm="tollhouse""#;

/// Identifies the gateway that signed a request's identity: requests get their [`Origin`]. A signing key withdrawn
/// after the identity was verified is refused.
pub(super) async fn came_through(State(gateways): State<Arc<Gateways>>, mut request: Request, next: Next) -> Response {
    let Some(origin) = origin(&gateways, request.extensions()) else { return identity_required().into_response() };
    request.extensions_mut().insert(origin);
    next.run(request).await
}

/// The client of a request and the gateway that signed its identity; `None` if the gateway's key was withdrawn since.
pub(crate) fn origin(gateways: &Gateways, extensions: &Extensions) -> Option<Origin> {
    let (identity, signed_by) = (extensions.get::<Identity>()?, extensions.get::<SignedBy>()?);
    let gateway = gateways.identities.lock().gateway(&signed_by.0)?.to_owned();
    Some(Origin { client: identity.client, gateway })
}

/// Finds the holder of the presented key. Requests get their [`Actor`].
pub(super) async fn require_key(State(core): State<Arc<Core>>, mut request: Request, next: Next) -> ApiResult {
    let extensions = request.extensions();
    let (Some(identity), Some(origin)) = (extensions.get::<Identity>(), extensions.get::<Origin>()) else {
        return Ok(identity_required().into_response());
    };
    let actor = holder(&core, request.headers(), identity, origin.clone()).await?;
    request.extensions_mut().insert(actor);
    Ok(next.run(request).await)
}

/// The key in `Authorization`, which must occur once.
fn presented(headers: &HeaderMap) -> ApiResult<PresentedKey> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Err(refused(Code::MissingApiKey, "Send your API key: Authorization: Bearer <API_KEY>."));
    };
    let value = value.to_str().ok().filter(|_| values.next().is_none());
    value.and_then(|value| PresentedKey::from_authorization(value).ok()).ok_or_else(invalid)
}

/// The holder of the presented key, from our own table.
async fn holder(core: &Core, headers: &HeaderMap, identity: &Identity, origin: Origin) -> ApiResult<Actor> {
    let presented = presented(headers)?;
    let found = core.store.key_by_digest(presented.digest()).await?;
    let valid = found.filter(|key| key.is_valid() && key.environment == core.settings.environment);
    let key = valid.ok_or_else(invalid)?;
    if key.expires_at.is_some_and(|end| end <= core.clock.now_seconds()) {
        return Err(refused(Code::ExpiredApiKey, "The API key has expired."));
    }
    // An honest gateway signs for the key that it hands on.
    let signed = identity.caller.as_ref();
    if signed.is_none_or(|caller| caller.key != key.id || caller.project_uid != key.project.uid) {
        tracing::warn!(
            gateway = origin.gateway,
            api_key.id = %key.id,
            client = %origin.client,
            "refused a request: its gateway signed the identity of another API key than the request carries. This \
             gateway may be in wrong hands: check it, or run `tollhouse node revoke`"
        );
        return Err(invalid());
    }
    Ok(Actor::holder(&key.id, key.project, key.scopes, origin))
}

fn invalid() -> ApiError {
    refused(Code::InvalidApiKey, "The API key is unknown or revoked.")
}

fn refused(code: Code, message: &str) -> ApiError {
    code.refuse(message).with_header(header::WWW_AUTHENTICATE, CHALLENGE).into()
}

/// Accepts requests with a valid credential of this kind. They carry the [`Credential`], and operators' the [`Actor`]
/// that the audit log names. The time of its use is recorded later, so the answer does not wait for the disk.
///
/// [`Credential`]: crate::store::credentials::Credential
pub(super) async fn require_credential(
    State((core, kind)): State<(Arc<Core>, Kind)>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(token) = guard::bearer(request.headers()) else { return guard::token_required() };
    // Digests are compared, so time tells nothing of the token.
    let Ok(found) = core.store.credential(&hexadecimal(guard::digest_of(token))).await else {
        let message = "The credential is not known here, and the database does not answer. Retry shortly.";
        return Code::StorageUnavailable.refuse(message).with_header(header::RETRY_AFTER, "1").into_response();
    };
    let now = core.clock.now();
    let Some(credential) = found.filter(|found| found.kind == kind && found.is_current(now)) else {
        return guard::token_required();
    };
    core.store.record_use(&credential.digest, now);
    if kind == Kind::Operator {
        request.extensions_mut().insert(Actor::operator_named(&credential.name));
    }
    request.extensions_mut().insert(credential);
    next.run(request).await
}
