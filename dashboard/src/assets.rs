//! Style sheet and script, and the security headers of every page.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};

use super::digest::digest_of;
use super::fault::Fault;

/// Every file, with its type.
const FILES: &[(&str, &str, &str)] = &[
    ("app.css", "text/css; charset=utf-8", include_str!("../assets/app.css")),
    ("app.js", "text/javascript; charset=utf-8", include_str!("../assets/app.js")),
    ("icon.svg", "image/svg+xml", include_str!("../assets/icon.svg")),
];

/// A version for addresses: it changes with any file, so browsers may cache an address for ever.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let all: String = FILES.iter().map(|(_, _, text)| *text).collect();
    digest_of(&all).chars().filter(char::is_ascii_alphanumeric).take(10).collect()
});

/// Content security policy: only our own files, no inline script or style, no frames, forms only to this host.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);

/// The address of a file.
pub(super) fn address(name: &str) -> String {
    format!("/assets/{}-{name}", *VERSION)
}

/// `GET /assets/{version}-{file}`.
pub(super) async fn serve(Path(file): Path<String>) -> Response {
    let named = file.split_once('-').map_or(file.as_str(), |(_, name)| name);
    let Some((_, kind, text)) = FILES.iter().find(|(name, _, _)| *name == named) else {
        return Fault::nothing_here().into_response();
    };
    let headers = [(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
    (headers, *text).into_response()
}

/// The headers of every response.
pub(super) async fn secure(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        // Not `no-referrer`: forms would say that they come from nowhere.
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=()"),
        ("strict-transport-security", "max-age=31536000"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
