//! Shows a new key or secret once.
//!
//! The response to the form redirects to the page and carries the secret in a cookie, sealed and bound to the session.
//! The page shows it and deletes the cookie. So reloading the page creates nothing, and the server keeps no secret.

use axum::response::Response;
use http::{HeaderMap, header};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::fault::{Fault, PageResult};
use super::session::{self, Session, cookie, presented};

const COOKIE: &str = "__Host-tollhouse-made";

/// The time in which the browser must follow the redirect.
const SECONDS: i64 = 60;

fn place(session: &Session) -> String {
    format!("shown once to {}", session.id)
}

/// Redirects to the page at `path`, which shows `value`.
pub(super) fn lead(session: &Session, path: &str, value: &impl Serialize) -> PageResult {
    let text = serde_json::to_vec(value).map_err(Fault::internal)?;
    let sealed = session.sealing().seal(&text, &place(session));
    session::lead(COOKIE, &sealed.map_err(Fault::internal)?, SECONDS, path)
}

/// The value to show, if there is one.
pub(super) fn find<T: DeserializeOwned>(session: &Session, headers: &HeaderMap) -> Option<T> {
    let text = session.sealing().open(presented(headers, COOKIE)?, &place(session)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Deletes the cookie, after the page has shown it.
pub(super) fn done(mut response: Response) -> PageResult {
    response.headers_mut().append(header::SET_COOKIE, cookie(COOKIE, "", 0)?);
    Ok(response)
}
