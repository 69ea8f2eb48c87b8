//! Forms: accepted only from our own pages, and only from the session that they were made for.

use axum::extract::{FromRequest, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Form, RequestExt as _};
use chassis::body;
use http::{HeaderMap, Method, header};

use super::explain;
use super::fault::Fault;
use super::session::{Session, same};
use super::words as w;

/// The largest form, in bytes.
const FORM_BYTES_MAX: usize = 16 * 1024;

const INVALID_FORM: &str = "The form could not be read.";

/// Refuses changes that were not sent from a page of this host.
pub(super) async fn same_origin(request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if reads || is_same_origin(request.headers()) {
        next.run(request).await
    } else {
        Fault::refused(403, "foreign_form", w::FOREIGN_FORM).into_response()
    }
}

/// Browsers send the origin of a form. A request without these headers is not from a browser.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if text("sec-fetch-site").is_some_and(|site| site != "same-origin") {
        return false;
    }
    // Another port of the host is another origin, perhaps of another program.
    let without_usual_port = |authority: &'_ str| authority.strip_suffix(":443").unwrap_or(authority).to_owned();
    let host = text(header::HOST.as_str()).map(without_usual_port);
    let origin = text(header::ORIGIN.as_str()).and_then(|origin| origin.strip_prefix("https://"));
    let origin = origin.map(without_usual_port);
    host.is_some() && host == origin
}

/// Reads the whole form before it checks the session, so that the form of a session that ended meanwhile changes
/// nothing.
pub(super) async fn whole(request: Request, next: Next) -> Response {
    match body::whole(request, FORM_BYTES_MAX).await {
        Ok(request) => next.run(request).await,
        Err(_) => explain::page(None, &Fault::refused(400, "invalid_form", INVALID_FORM)),
    }
}

/// The fields of a form.
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// The text of a field without surrounding blanks; empty if the field is missing.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value.trim())
    }

    /// Every value of a field that may occur several times.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Whether a box is ticked.
    pub(super) fn is_set(&self, name: &str) -> bool {
        !self.text(name).is_empty()
    }
}

impl<S: Send + Sync> FromRequest<S> for Fields {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &S) -> Result<Self, Fault> {
        let malformed = |_| Fault::refused(400, "invalid_form", INVALID_FORM);
        let Form(fields) = request.extract::<Form<Vec<(String, String)>>, _>().await.map_err(malformed)?;
        Ok(Self(fields))
    }
}

/// A form that was sent within a session.
pub(super) struct Posted {
    pub(super) session: Session,
    pub(super) fields: Fields,
}

impl<S: Send + Sync> FromRequest<S> for Posted {
    type Rejection = Fault;

    async fn from_request(request: Request, state: &S) -> Result<Self, Fault> {
        let session = request.extensions().get::<Session>().cloned();
        let fields = Fields::from_request(request, state).await?;
        let Some(session) = session else { return Err(Fault::SignIn) };
        if same(fields.text("csrf"), &session.csrf) {
            Ok(Self { session, fields })
        } else {
            Err(Fault::refused(403, "stale_form", w::STALE_FORM))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_come_from_our_own_pages() {
        let headers = |list: &[(&'static str, &'static str)]| -> HeaderMap {
            list.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
        };
        let host = ("host", "dashboard.apps.test");
        let other_port = ("host", "dashboard.apps.test:8443");
        for (good, list) in [
            (true, vec![other_port, ("origin", "https://dashboard.apps.test:8443"), ("sec-fetch-site", "same-origin")]),
            (true, vec![host, ("origin", "https://dashboard.apps.test")]),
            (false, vec![host, ("origin", "https://dashboard.apps.test:8443")]),
            (false, vec![other_port, ("origin", "https://dashboard.apps.test")]),
            (false, vec![host, ("origin", "https://shop.apps.test")]),
            (false, vec![host, ("origin", "http://dashboard.apps.test")]),
            (false, vec![host, ("origin", "https://dashboard.apps.test:443@evil.example")]),
            (false, vec![host, ("origin", "null")]),
            (false, vec![host]),
            (false, vec![host, ("origin", "https://dashboard.apps.test"), ("sec-fetch-site", "cross-site")]),
        ] {
            assert_eq!(is_same_origin(&headers(&list)), good, "{list:?}");
        }
    }
}
