//! The overview for operators: bans, certificates that end soon, and domains that wait for their owners.

use std::sync::Arc;

use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::on;
use chassis::openapi::Method;

use super::Operation;
use super::types::Overview;
use crate::common::Core;
use crate::error::ApiResult;

/// Rows of each list.
const ROWS_MAX: i64 = 20;

/// Bans shown.
const BANS_SHOWN: usize = 20;

/// Operations on all projects together, for operators.
pub(super) const OPERATIONS: &[Operation] =
    &[Operation::internal("showOverview", Method::Get, "/internal/overview", |get| on(get, show))];

/// `GET /internal/overview`.
async fn show(State(core): State<Arc<Core>>) -> ApiResult {
    let store = &core.store;
    let (bans, bans_total) = store.bans(core.clock.now(), BANS_SHOWN).await?;
    let overview = Overview {
        certificates_ending: store.certificates_ending(ROWS_MAX).await?,
        domains_stuck: store.stuck_domains(ROWS_MAX).await?,
        bans,
        bans_total,
    };
    Ok(axum::Json(overview).into_response())
}
