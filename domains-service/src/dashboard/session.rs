//! Who is signed in.
//!
//! The cookie holds 32 random bytes; the database their digest, the key they were opened with, and when. Every request
//! looks the key up again, so whoever revokes a key ends its sessions with it. An operator has no key: the digest of an
//! operator's session is made with the operators' secret, so whoever changes that ends them all; one that a token led to
//! ends with the token. A session ends after an
//! hour without a request, and after twelve hours whatever happens. Signing in always opens a new one.

use std::sync::Arc;

use aws_lc_rs::{digest, hmac};
use axum::extract::{FromRequestParts, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use contract::key::{KeyId, Scope, Scopes};
use http::{HeaderMap, HeaderValue, header};

use super::Dashboard;
use super::fault::Fault;
use crate::actor::{Actor, Origin};
use crate::app::App;
use crate::error::Stop;
use crate::project::ProjectRef;
use crate::store::sessions::{ABSOLUTE_MILLIS_MAX, IDLE_MILLIS_MAX, SessionRecord};

/// The field of requests that an open page makes by itself (`app.js`).
const BY_ITSELF: &str = "x-by-itself";

/// A session's last use is written down this often at most.
const SEEN_MILLIS: i64 = 60 * 1_000;

/// `__Host-`: only from https, only for this host, for all of it.
const COOKIE: &str = "__Host-tollhouse";

/// What begins an operator's cookie. Keys of projects have none, so nobody's session is taken for the other kind.
const OPERATOR_MARK: &str = "operator.";

/// Somebody who is signed in.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) record: SessionRecord,
    pub(super) actor: Actor,
    /// What every form must send back.
    pub(super) csrf: String,
    /// What the key may do; everything for an operator.
    pub(super) scopes: Scopes,
}

impl Session {
    pub(super) fn is_operator(&self) -> bool {
        self.record.holder.is_none()
    }

    /// The project of the key, nothing for an operator.
    pub(super) fn project(&self) -> Option<&ProjectRef> {
        self.record.holder.as_ref().map(|(project, _)| project)
    }

    pub(super) fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(scope)
    }
}

/// The digest by which a secret of the dashboard is kept.
pub(super) fn digest_of(secret: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, secret.as_bytes()))
}

/// The digest by which an operator's session or link is kept: another one after the operators' secret has changed.
pub(super) fn operator_digest_of(app: &App, secret: &str) -> String {
    URL_SAFE_NO_PAD.encode(hmac::sign(&app.api.operators, secret.as_bytes()))
}

/// The digest of a cookie.
fn kept_under(app: &App, secret: &str) -> String {
    if secret.starts_with(OPERATOR_MARK) { operator_digest_of(app, secret) } else { digest_of(secret) }
}

/// 32 random bytes as text.
pub(super) fn random_secret() -> Result<String, Stop> {
    Ok(URL_SAFE_NO_PAD.encode(chassis::random::bytes::<32>()?))
}

/// What forms of the session send back: nobody can make it without the cookie.
fn csrf_of(secret: &str) -> String {
    URL_SAFE_NO_PAD.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), b"form"))
}

/// Whether two texts are the same, in a time that does not tell where they differ.
pub(super) fn same(left: &str, right: &str) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(left.as_bytes(), right.as_bytes()).is_ok()
}

/// Opens a session and returns the value of `Set-Cookie`.
pub(super) async fn open(
    dashboard: &Dashboard,
    holder: Option<(ProjectRef, KeyId)>,
    operator: Option<String>,
    origin: &Origin,
) -> Result<HeaderValue, Stop> {
    let random = random_secret()?;
    let secret = if holder.is_none() { format!("{OPERATOR_MARK}{random}") } else { random };
    let now = dashboard.app.core.clock.now();
    let client = origin.client.to_string();
    let record = SessionRecord {
        digest: kept_under(&dashboard.app, &secret),
        holder,
        operator,
        client,
        created_at: now,
        seen_at: now,
    };
    dashboard.app.core.store.open_session(&record).await?;
    cookie(COOKIE, &secret, ABSOLUTE_MILLIS_MAX / 1_000)
}

/// Takes the cookie away.
pub(super) fn no_cookie() -> Result<HeaderValue, Stop> {
    cookie(COOKIE, "", 0)
}

/// The value of `Set-Cookie` of a cookie for this host alone.
pub(super) fn cookie(name: &str, value: &str, seconds: i64) -> Result<HeaderValue, Stop> {
    let text = format!("{name}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax");
    HeaderValue::from_str(&text).map_err(|error| Stop::from(anyhow::Error::new(error)))
}

/// A cookie of a request.
pub(super) fn presented<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|value| value.split(';')).map(str::trim);
    pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

/// Finds out who is signed in and hands on a [`Session`] where somebody is.
pub(super) async fn recognise(State(dashboard): State<Arc<Dashboard>>, mut request: Request, next: Next) -> Response {
    let secret = presented(request.headers(), COOKIE).map(str::to_owned);
    let origin = request.extensions().get::<Origin>().cloned();
    let (Some(secret), Some(origin)) = (secret, origin) else { return next.run(request).await };
    // What an open page asks by itself is nobody's doing: it does not keep the session alive.
    let by_itself = request.uri().path().ends_with("/live") || request.headers().contains_key(BY_ITSELF);
    match find(&dashboard, &secret, origin, by_itself).await {
        Ok(Some(session)) => {
            request.extensions_mut().insert(session);
            next.run(request).await
        }
        Ok(None) => next.run(request).await,
        // Whoever cannot be recognised is not signed out: the page says what is the matter.
        Err(stop) => super::fault::page(None, &Fault::from(stop)).into_response(),
    }
}

/// Finds the project that an operator names in the path, as [`crate::api::place`] does.
pub(super) async fn place(
    State(dashboard): State<Arc<Dashboard>>,
    parameters: RawPathParams,
    mut request: Request,
    next: Next,
) -> Response {
    let name = parameters.iter().find(|(parameter, _)| *parameter == "project").and_then(|(_, name)| name.parse().ok());
    let session = request.extensions_mut().get_mut::<Session>().filter(|session| session.is_operator());
    if let Some((session, name)) = session.zip(name) {
        match dashboard.app.core.store.project_named(&name).await {
            Ok(place) => session.actor = session.actor.clone().within(place),
            Err(error) => return Fault::from(Stop::from(error)).into_response(),
        }
    }
    next.run(request).await
}

async fn find(dashboard: &Dashboard, secret: &str, origin: Origin, by_itself: bool) -> Result<Option<Session>, Stop> {
    let store = &dashboard.app.core.store;
    let Some(record) = store.find_session(&kept_under(&dashboard.app, secret)).await? else {
        return Ok(None);
    };
    // Before, operators' sessions did not depend on their secret.
    if record.holder.is_none() != secret.starts_with(OPERATOR_MARK) {
        return Ok(None);
    }
    let now = dashboard.app.core.clock.now();
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
            let Some(key) = store.key(project, id).await? else { return Ok(None) };
            if !is_usable(&key, now.to_seconds()) {
                return Ok(None);
            }
            (Actor::holder(id, project.clone(), key.scopes.clone(), origin), key.scopes)
        }
    };
    if !by_itself
        && now.since(record.seen_at) > SEEN_MILLIS
        && let Err(error) = store.see_session(&record.digest, now).await
    {
        tracing::warn!(%error, "the use of a session was not written down; it ends an hour after the last noted use");
    }
    Ok(Some(Session { record, actor, csrf: csrf_of(secret), scopes }))
}

/// Whether a key may be used at `now`.
pub(super) fn is_usable(key: &crate::store::keys::KeyRecord, now: contract::time::UnixSeconds) -> bool {
    key.unreadable.is_none() && key.revoked_at.is_none() && key.expires_at.is_none_or(|at| now < at)
}

impl<S: Send + Sync> FromRequestParts<S> for Session {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fault> {
        parts.extensions.get::<Self>().cloned().ok_or(Fault::SignIn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_found_among_others_and_only_by_its_whole_name() {
        let of = |text: &'static str| HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_static(text))]);
        assert_eq!(presented(&of("a=b; __Host-tollhouse=secret; c=d"), COOKIE), Some("secret"));
        assert_eq!(presented(&of("__Host-tollhouse-made=secret"), COOKIE), None);
        assert_eq!(presented(&of("x__Host-tollhouse=secret"), COOKIE), None);
    }

    #[test]
    fn what_forms_send_back_is_the_sessions_own() {
        assert_ne!(csrf_of("one"), csrf_of("two"));
        assert!(!csrf_of("one").contains("one") && same(&csrf_of("one"), &csrf_of("one")));
    }
}
