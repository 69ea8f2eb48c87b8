//! The usage of a project's keys, and the limits of all plans.

use axum::response::IntoResponse;
use axum::routing::on;
use chassis::openapi::{Method, Success};
use contract::plan::Plan;
use contract::schema;
use contract::time::UnixSeconds;

use super::Operation;
use super::extract::Authorised;
use super::types::{PlanGrant, USAGE_DAYS, Usage, UsageOfDay};
use crate::error::ApiResult;
use crate::text::rfc3339_seconds;

const DAY_SECONDS: i64 = 86_400;

/// Usage.
pub(super) const OPERATIONS: &[Operation] = &[Operation {
    tag: "projects",
    summary: "Show usage",
    description: "Requests of the last 30 days, and the limits of each plan. Any key of the project may call this. Gateways report \
                  the figures every two seconds; quotas are counted separately and exactly.",
    answers: &[Success::new(200, "The usage.", schema::of::<Usage>)],
    ..Operation::internal("showUsage", Method::Get, "/v1/projects/{project}/usage", |get| on(get, show))
}];

/// `GET …/usage`.
pub(super) async fn show(Authorised { part: core, project, .. }: Authorised) -> ApiResult {
    let now = core.clock.now_seconds().0;
    let first = now.div_euclid(DAY_SECONDS) - USAGE_DAYS + 1;
    let days = core.store.usage(&project, first).await?.into_iter().map(|usage| UsageOfDay {
        date: rfc3339_seconds(UnixSeconds(usage.day * DAY_SECONDS)).chars().take(10).collect(),
        admitted: usage.admitted,
        refused: usage.refused,
        banned: usage.banned,
    });
    let plans = Plan::ALL.iter().map(|plan| {
        let grant = core.settings.plans.of(*plan);
        PlanGrant { plan: *plan, limits: grant.limits, domains: grant.domains }
    });
    let usage = Usage {
        in_minute: core.store.usage_of_minute(&project, now.div_euclid(60)).await?,
        days: days.collect(),
        plans: plans.collect(),
    };
    Ok(axum::Json(usage).into_response())
}
