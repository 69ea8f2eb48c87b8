//! Links that sign operators in to the dashboard.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::on;
use chassis::openapi::Method;
use http::{StatusCode, header};
use serde_json::json;

use super::Operation;
use super::view::rfc3339;
use crate::app::ApiState;
use crate::error::ApiResult;
use crate::sessions;
use crate::store::credentials::Credential;
use dashboard::LABEL;

/// Operations on the dashboard, for operators.
pub(super) const OPERATIONS: &[Operation] =
    &[Operation::internal("makeDashboardLink", Method::Post, "/internal/dashboard-links", |post| on(post, make))];

/// `POST /internal/dashboard-links`: a link that signs its operator in, once.
async fn make(State(api): State<Arc<ApiState>>, Extension(operator): Extension<Credential>) -> ApiResult {
    let (secret, expires_at) = sessions::make_link(&api, &operator.name).await?;
    let body = json!({
        "host": format!("{LABEL}.{}", api.core.settings.platform),
        "path": format!("/enter?link={secret}"),
        "expires_at": rfc3339(expires_at),
    });
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], axum::Json(body)).into_response())
}
