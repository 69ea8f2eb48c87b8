//! The overview for operators: bans, certificates that end soon, and domains that wait for their owners.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use chassis::openapi::Method;
use contract::time::{UnixMillis, UnixSeconds};

use super::Operation;
use super::types::{EndingCertificate, ListedBan, Overview, StuckDomain};
use crate::app::App;
use crate::error::ApiResult;

/// Rows of each list.
const ROWS_MAX: i64 = 20;

/// Bans shown.
const BANS_SHOWN: usize = 20;

const SHOW: Operation = Operation::internal("showOverview", Method::Get, "/internal/overview", |get| on(get, show));

/// Operations on all projects together, for operators.
pub(super) const OPERATIONS: &[Operation] = &[SHOW];

/// `GET /internal/overview`.
async fn show(State(app): State<Arc<App>>) -> ApiResult {
    let store = &app.core.store;
    let ending = store.certificates_ending(ROWS_MAX).await?.into_iter().map(|row| EndingCertificate {
        name: row.name,
        project: row.project,
        ca: row.ca,
        not_after: UnixSeconds(row.not_after).into(),
    });
    let stuck = store.stuck_domains(ROWS_MAX).await?.into_iter().map(|row| StuckDomain {
        name: row.name,
        project: row.project,
        status: row.status,
        problem: row.problem,
        since: UnixMillis(row.since).into(),
    });
    let bans = store.bans(app.core.clock.now(), BANS_SHOWN).await?;
    let listed = bans.listed.into_iter().map(|known| {
        let (project, label) = known.holder.unzip();
        ListedBan { ban: known.ban, project, label }
    });
    let overview = Overview {
        certificates_ending: ending.collect(),
        domains_stuck: stuck.collect(),
        bans: listed.collect(),
        bans_total: bans.total,
    };
    Ok(axum::Json(overview).into_response())
}
