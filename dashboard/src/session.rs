//! Sessions, identified by a cookie.
//!
//! The cookie holds 32 random bytes. The control plane looks up their holder and their end at every request.

use std::ops::Deref;
use std::sync::Arc;

use aws_lc_rs::hmac;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Redirect};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chassis::seal::SealingKey;
use contract::key::Scope;
use contract::time::UnixMillis;
use domains_api::Operation;
use domains_api::actor::Actor;
use domains_api::project::ProjectRef;
use http::{HeaderMap, HeaderValue, header};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::control_plane::{Answered, ControlPlane, Refused, SignedIn};
use super::fault::{Fault, PageResult};

/// `__Host-`: the cookie is sent only over https, only to this host, for all its paths.
pub(super) const COOKIE: &str = "__Host-tollhouse";

/// A session and the holder of its key. Pages call the API through it.
#[derive(Clone)]
pub(super) struct Session {
    control_plane: Arc<dyn ControlPlane>,
    signed_in: SignedIn,
    /// The token that every form must send back.
    pub(super) csrf: String,
}

impl Session {
    /// The session with this secret.
    pub(super) fn of(control_plane: Arc<dyn ControlPlane>, signed_in: SignedIn, secret: &str) -> Self {
        Self { control_plane, signed_in, csrf: csrf_of(secret) }
    }

    /// Calls an operation of the API with the parameters of its path, in order, and a query. `Value::Null`: no body.
    pub(super) async fn call(
        &self,
        operation: Operation,
        place: (&[&str], &str),
        body: &Value,
    ) -> Result<Answered, Refused> {
        self.control_plane.call(&self.actor, operation, place, body).await
    }

    /// Calls an operation that only reads.
    pub(super) async fn get<T>(&self, operation: Operation, named: &[&str], query: &str) -> Result<T, Refused>
    where
        T: DeserializeOwned,
    {
        self.call(operation, (named, query), &Value::Null).await?.read()
    }

    /// The time.
    pub(super) fn now(&self) -> UnixMillis {
        self.control_plane.now()
    }

    /// Seals what a page shows once.
    pub(super) fn sealing(&self) -> &SealingKey {
        self.control_plane.sealing()
    }

    pub(super) fn is_operator(&self) -> bool {
        self.holder.is_none()
    }

    /// The project of the key; `None` for an operator.
    pub(super) fn project(&self) -> Option<&ProjectRef> {
        self.holder.as_ref().map(|(project, _)| project)
    }

    /// Uses this actor from now on.
    pub(super) fn act_as(&mut self, actor: Actor) {
        self.signed_in.actor = actor;
    }

    /// The project in a path, if the session may see its pages.
    pub(super) fn authorise(&self, project: &str, scope: Option<Scope>) -> Result<ProjectRef, Fault> {
        Ok(self.actor.authorise(project, scope)?)
    }
}

impl Deref for Session {
    type Target = SignedIn;

    fn deref(&self) -> &SignedIn {
        &self.signed_in
    }
}

/// The token that forms of the session send back. It can be computed only from the cookie.
fn csrf_of(secret: &str) -> String {
    URL_SAFE_NO_PAD.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), b"form"))
}

/// Whether two texts are equal, in constant time.
pub(super) fn same(left: &str, right: &str) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(left.as_bytes(), right.as_bytes()).is_ok()
}

/// Redirects to the page at `path` with a cookie for this host alone.
pub(super) fn lead(name: &str, value: &str, seconds: i64, path: &str) -> PageResult {
    Ok(([(header::SET_COOKIE, cookie(name, value, seconds)?)], Redirect::to(path)).into_response())
}

/// The value of `Set-Cookie` of a cookie for this host alone; one of no seconds is deleted.
pub(super) fn cookie(name: &str, value: &str, seconds: i64) -> Result<HeaderValue, Fault> {
    let text = format!("{name}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax");
    HeaderValue::from_str(&text).map_err(Fault::internal)
}

/// A cookie of a request.
pub(super) fn presented<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|value| value.split(';')).map(str::trim);
    pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
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
    fn the_token_of_forms_belongs_to_one_session() {
        assert_ne!(csrf_of("one"), csrf_of("two"));
        assert!(!csrf_of("one").contains("one") && same(&csrf_of("one"), &csrf_of("one")));
    }
}
