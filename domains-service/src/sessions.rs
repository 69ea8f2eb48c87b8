//! Sessions of the dashboard: their start, their holders, and their end.
//!
//! A cookie holds 32 random bytes; the database holds their digest, the session's key, and its start. Every request
//! looks the key up again, so that revoking a key ends its sessions. An operator has no key: the digest of an
//! operator's session is made with the operators' secret, so that changing the secret ends them all; a session that a
//! token led to ends with the token. A session ends after an hour without a request, and after twelve hours in any
//! case. Signing in always opens a new one.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chassis::guard;
use contract::key::{KeyId, PresentedKey, Scope, Scopes};
use contract::time::UnixMillis;
use contract::window::Window;
use serde_json::json;

use crate::actor::{Actor, Origin};
use crate::app::ApiState;
use crate::error::{ApiError, ApiResult};
use crate::project::ProjectRef;
use crate::store::keys::{self, KeyRecord};
use crate::store::sessions::{ABSOLUTE_MILLIS_MAX, IDLE_MILLIS_MAX, SessionRecord};
use dashboard::{NewSession, NotSignedIn, SignedIn};

/// Interval at which a session's last use is recorded.
const SEEN_MILLIS: i64 = 60 * 1_000;

/// Lifetime of a link: five minutes.
const LINK_MILLIS: i64 = 5 * 60 * 1_000;

/// Prefix of an operator's cookie. Sessions of keys have none, so the two kinds cannot be confused.
const OPERATOR_MARK: &str = "operator.";

/// The scopes that pages need: a key needs one of them to sign in.
const SCOPES: [Scope; 3] = [Scope::DomainsRead, Scope::DomainsWrite, Scope::KeysWrite];

/// The stored digest of an operator's session or link: it no longer matches after the operators' secret has changed.
fn operator_digest_of(api: &ApiState, secret: &str) -> String {
    URL_SAFE_NO_PAD.encode(hmac::sign(&api.operators, secret.as_bytes()))
}

/// The digest of a cookie.
fn kept_under(api: &ApiState, secret: &str) -> String {
    let is_operators = secret.starts_with(OPERATOR_MARK);
    if is_operators { operator_digest_of(api, secret) } else { URL_SAFE_NO_PAD.encode(guard::digest_of(secret)) }
}

/// 32 random bytes as text.
fn random_secret() -> ApiResult<String> {
    Ok(URL_SAFE_NO_PAD.encode(chassis::random::bytes::<32>()?))
}

/// A link that signs the operator of this name in once: its secret, and its end.
pub(crate) async fn make_link(api: &ApiState, operator: &str) -> ApiResult<(String, UnixMillis)> {
    let secret = random_secret()?;
    let expires_at = api.core.clock.now().plus(LINK_MILLIS);
    api.core.store.save_link(&operator_digest_of(api, &secret), operator, expires_at).await?;
    Ok((secret, expires_at))
}

impl From<ApiError> for NotSignedIn {
    fn from(error: ApiError) -> Self {
        Self::Refused(error.into())
    }
}

/// Spends a link and opens the session of the operator who asked for it.
pub(crate) async fn follow_link(api: &ApiState, link: &str, origin: Origin) -> Result<NewSession, NotSignedIn> {
    api.throttles.sign_in_from(origin.client).map_err(NotSignedIn::TooManyAttempts)?;
    let now = api.core.clock.now();
    let spent = api.core.store.spend_link(&operator_digest_of(api, link), now).await.map_err(ApiError::from)?;
    let operator = spent.ok_or(NotSignedIn::LinkSpent)?;
    let opened = open(api, None, Some(operator.clone()), &origin).await?;
    tracing::info!(actor = operator, client = %origin.client, "an operator signed in to the dashboard");
    Ok(opened)
}

/// Opens the session of the holder of a key.
pub(crate) async fn sign_in(
    api: &ApiState,
    key: &str,
    origin: Origin,
) -> Result<(ProjectRef, NewSession), NotSignedIn> {
    let throttles = &api.throttles;
    throttles.sign_in_from(origin.client).map_err(NotSignedIn::TooManyAttempts)?;
    let presented = PresentedKey::parse(key).map_err(|_| NotSignedIn::NotAKey)?;
    throttles.sign_in_with(presented.digest().to_text()).map_err(NotSignedIn::TooManyAttempts)?;
    let found = api.core.store.key_by_digest(presented.digest()).await.map_err(ApiError::from)?;
    let now = api.core.clock.now_seconds();
    let key = found.filter(|key| key.is_usable(now)).ok_or(NotSignedIn::UnknownKey)?;
    if !SCOPES.iter().any(|scope| key.scopes.contains(*scope)) {
        return Err(NotSignedIn::NothingToDo);
    }
    let opened = open(api, Some((key.project.clone(), key.id.clone())), None, &origin).await?;
    record_sign_in(api, &key, origin).await?;
    Ok((key.project, opened))
}

/// Records the sign-in, so that the project's owner sees who signed in with which key.
async fn record_sign_in(api: &ApiState, key: &KeyRecord, origin: Origin) -> ApiResult<()> {
    let actor = Actor::holder(&key.id, key.project.clone(), key.scopes.clone(), origin);
    let mut write = api.core.store.write().await?;
    let now = write.now();
    keys::record_use(write.connection(), &key.id, Window::Minute.index(now), now).await?;
    write.record(&key.project, None, "dashboard.signed_in", &actor, json!({ "key": key.id })).await?;
    write.commit().await?;
    Ok(())
}

async fn open(
    api: &ApiState,
    holder: Option<(ProjectRef, KeyId)>,
    operator: Option<String>,
    origin: &Origin,
) -> ApiResult<NewSession> {
    let random = random_secret()?;
    let secret = if holder.is_none() { format!("{OPERATOR_MARK}{random}") } else { random };
    let now = api.core.clock.now();
    let record = SessionRecord {
        digest: kept_under(api, &secret),
        holder,
        operator,
        client: origin.client.to_string(),
        created_at: now,
        seen_at: now,
    };
    api.core.store.open_session(&record).await?;
    Ok(NewSession { secret, seconds: ABSOLUTE_MILLIS_MAX / 1_000 })
}

/// The holder of the session with this secret, if it is valid.
pub(crate) async fn find(api: &ApiState, secret: &str, origin: Origin, by_itself: bool) -> ApiResult<Option<SignedIn>> {
    let store = &api.core.store;
    let Some(record) = store.find_session(&kept_under(api, secret)).await? else { return Ok(None) };
    // Before, operators' sessions did not depend on their secret.
    if record.holder.is_none() != secret.starts_with(OPERATOR_MARK) {
        return Ok(None);
    }
    let now = api.core.clock.now();
    if now.since(record.seen_at) > IDLE_MILLIS_MAX || now.since(record.created_at) > ABSOLUTE_MILLIS_MAX {
        return Ok(None);
    }
    let (actor, scopes) = match &record.holder {
        None => {
            // It ends with the credential of the operator who asked for its link.
            let operator = record.operator.as_deref().unwrap_or_default();
            if !store.is_operator(operator, now).await? {
                return Ok(None);
            }
            (Actor::operator_at(origin, operator), Scopes::all())
        }
        Some((project, id)) => {
            let Some(key) = keys::find_key(store.reader(), project, id).await? else { return Ok(None) };
            if !key.is_usable(now.to_seconds()) {
                return Ok(None);
            }
            (Actor::holder(id, project.clone(), key.scopes.clone(), origin), key.scopes)
        }
    };
    if !by_itself
        && now.since(record.seen_at) > SEEN_MILLIS
        && let Err(error) = store.see_session(&record.digest, now).await
    {
        tracing::warn!(%error, "cannot record the use of a session; it ends an hour after the last recorded use");
    }
    Ok(Some(SignedIn { id: record.digest, holder: record.holder, actor, scopes }))
}
