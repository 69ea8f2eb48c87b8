//! For other services of the platform: what happened there, to be told by webhooks, and which projects they must erase.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use contract::erasure::{ERASURES_MAX, Erasures};
use contract::event::{EVENTS_BYTES_MAX, OrderEvents};
use http::StatusCode;

use crate::app::App;
use crate::error::{Code, Stop};
use crate::store::{projects, webhooks};

/// `POST /internal/events/orders`: 204 when all of the events are on disk. They may come again; each is told once.
pub(super) async fn take_order_events(
    State(app): State<Arc<App>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Stop> {
    let body = body.map_err(|_| Code::BodyTooLarge.refuse(format!("Send at most {EVENTS_BYTES_MAX} bytes.")))?;
    let events: OrderEvents = serde_json::from_slice(&body)
        .map_err(|error| Code::InvalidBody.refuse(format!("These are no events: {error}.")))?;
    if !events.is_sound() {
        return Err(Code::InvalidBody.refuse("Something in these events is out of its bounds.").into());
    }
    let mut write = app.store.write().await?;
    webhooks::take(&mut write, &events).await?;
    write.commit().await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `GET /internal/erasures`: projects that are erased here and must be erased by the service that asks, the oldest first.
/// They are told until the service says that it has done so.
pub(super) async fn erasures(State(app): State<Arc<App>>) -> Result<Response, Stop> {
    let limit = i64::try_from(ERASURES_MAX).unwrap_or(i64::MAX);
    Ok(axum::Json(Erasures { projects: app.store.erasures(limit).await? }).into_response())
}

/// `POST /internal/erasures`: the service has erased these.
pub(super) async fn erased(State(app): State<Arc<App>>, body: Result<Bytes, BytesRejection>) -> Result<Response, Stop> {
    let body = body.map_err(|_| Code::BodyTooLarge.refuse(format!("Send at most {EVENTS_BYTES_MAX} bytes.")))?;
    let done: Erasures = serde_json::from_slice(&body)
        .map_err(|error| Code::InvalidBody.refuse(format!("These are no projects: {error}.")))?;
    let mut write = app.store.write().await?;
    for project in done.projects.iter().take(ERASURES_MAX) {
        projects::forget_erasure(write.connection(), project).await?;
    }
    write.commit().await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
