//! The JSON of projects and events in answers, pages of lists, and the answer to a withdrawal.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderName, StatusCode};
use serde_json::{Value, json};

use super::types::{self, Removal, Rfc3339};
use crate::common::Core;
use crate::domain::state::UNPAID_GRACE_MILLIS;
use crate::nodes::Acknowledged;
use crate::store::events::Through;
use crate::store::projects::ProjectRecord;
pub(super) use crate::text::rfc3339;

/// The number of gateways that stopped serving, and the time it took.
const EDGE_ACK: HeaderName = HeaderName::from_static("x-edge-ack");

/// A page of a list: its rows as JSON, and the cursor of the next page if this one is full.
pub(super) fn page<T, V>(
    rows: &[T],
    limit: i64,
    cursor: impl Fn(&T) -> String,
    view: impl Fn(&T) -> V,
) -> (Vec<V>, Option<String>) {
    let is_full = i64::try_from(rows.len()).is_ok_and(|count| count == limit);
    (rows.iter().map(view).collect(), rows.last().filter(|_| is_full).map(cursor))
}

/// A project.
pub(super) fn project(core: &Core, project: &ProjectRecord) -> types::Project {
    types::Project {
        id: project.id.name.clone(),
        uid: project.id.uid.clone(),
        plan: project.plan,
        limits: project.published(&core.settings.plans).limits,
        limits_override: project.limits,
        access: project.access,
        upstream: project.upstream.clone(),
        suspended: project.suspended,
        cors: project.browsers.cors.clone(),
        hsts: project.browsers.hsts,
        deployed: project.deployed_at.is_some(),
        deployed_at: project.deployed_at.map(Rfc3339::from),
        host: project.host(&core.settings.platform),
        cname_target: project.proof().target(&core.settings.edge_zone),
        domain_limit: core.settings.plans.of(project.plan).domains,
        withdrawal: None,
        domains_until: project.unpaid_since.map(|since| since.plus(UNPAID_GRACE_MILLIS).into()),
        created_at: project.created_at.into(),
        updated_at: project.updated_at.into(),
    }
}

/// An event, for operators: with the gateway that it came through.
pub(super) fn event_for_operators(through: &Through) -> Value {
    let mut shown = json!(through.event);
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("gateway".to_owned(), json!(through.gateway));
    }
    shown
}

/// The answer to a withdrawal.
pub(super) fn removed(acknowledged: &Acknowledged, took: Duration) -> Response {
    let acked = acknowledged.asked.saturating_sub(acknowledged.lagging.len());
    let ack = format!("{acked}/{}; {}ms", acknowledged.asked, took.as_millis());
    if acknowledged.lagging.is_empty() {
        (StatusCode::NO_CONTENT, [(EDGE_ACK, ack)]).into_response()
    } else {
        let body = Removal { lagging: acknowledged.lagging.clone() };
        (StatusCode::ACCEPTED, [(EDGE_ACK, ack)], axum::Json(body)).into_response()
    }
}
