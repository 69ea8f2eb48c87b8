//! The doors of the internal API: what kinds of credentials each part of it lets in.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use chassis::guard;
use http::header;

use crate::actor::Actor;
use crate::app::App;
use crate::error::Code;
use crate::store::credentials::Kind;
use crate::text::hexadecimal;

/// One door.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) app: Arc<App>,
    /// Who may pass.
    pub(super) lets_in: &'static [Kind],
}

/// Lets in requests with a good credential of the right kind. They carry the [`Credential`], and operators' the [`Actor`] that
/// the audit log names. That it was used is written down beside the answer, which does not wait for the disk.
///
/// [`Credential`]: crate::store::credentials::Credential
pub(super) async fn pass(State(door): State<Door>, mut request: Request, next: Next) -> Response {
    let Door { app, lets_in } = door;
    let Some(token) = guard::bearer(request.headers()) else { return guard::token_required() };
    // Digests are compared, so time tells nothing of the token.
    let Ok(found) = app.core.store.credential(&hexadecimal(guard::digest_of(token))).await else {
        let message = "The credential is not known here, and the database does not answer. Retry shortly.";
        return Code::StorageUnavailable.refuse(message).with_header(header::RETRY_AFTER, "1").into_response();
    };
    let now = app.core.clock.now();
    let Some(credential) = found.filter(|found| lets_in.contains(&found.kind) && found.is_current(now)) else {
        return guard::token_required();
    };
    app.core.store.note_use(&credential.digest, now);
    if credential.kind == Kind::Operator {
        request.extensions_mut().insert(Actor::operator_named(&credential.name));
    }
    request.extensions_mut().insert(credential);
    next.run(request).await
}
