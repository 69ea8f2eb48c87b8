//! What a domain's buttons do: verify, primary, redirect.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use serde_json::{Value, json};

use super::detail;
use crate::Dashboard;
use crate::fault::Fault;
use crate::form::Posted;
use chassis::percent::segment;
use domains_api::Operation;

/// `POST …/verify`: checks DNS now.
pub(crate) async fn verify(
    State(dashboard): State<Arc<Dashboard>>,
    Path((id, name)): Path<(String, String)>,
    posted: Posted,
) -> Result<Response, Fault> {
    carry_out(&dashboard, &posted, &id, &name, Operation::VerifyDomain, &Value::Null, "verified").await
}

/// `POST …/primary`.
pub(crate) async fn primary(
    State(dashboard): State<Arc<Dashboard>>,
    Path((id, name)): Path<(String, String)>,
    posted: Posted,
) -> Result<Response, Fault> {
    let body = json!({ "primary": !posted.fields.is_set("off") });
    carry_out(&dashboard, &posted, &id, &name, Operation::ChangeDomain, &body, "saved").await
}

/// `POST …/redirect`.
pub(crate) async fn redirect(
    State(dashboard): State<Arc<Dashboard>>,
    Path((id, name)): Path<(String, String)>,
    posted: Posted,
) -> Result<Response, Fault> {
    let to = posted.fields.text("to");
    let rule = match posted.fields.text("status").parse::<u16>() {
        _ if to.is_empty() => Value::Null,
        Ok(status) => json!({ "to": to, "status": status }),
        Err(_) => json!({ "to": to }),
    };
    carry_out(&dashboard, &posted, &id, &name, Operation::ChangeDomain, &json!({ "redirect": rule }), "saved").await
}

async fn carry_out(
    dashboard: &Dashboard,
    posted: &Posted,
    id: &str,
    name: &str,
    operation: Operation,
    body: &Value,
    notice: &str,
) -> Result<Response, Fault> {
    match dashboard.call(&posted.session.actor, operation, (&[id, name], ""), body).await {
        Ok(answered) => {
            let notice = if answered.status == 202 { "verifying" } else { notice };
            let place = format!("/projects/{}/domains/{}?{notice}", segment(id), segment(name));
            Ok(Redirect::to(&place).into_response())
        }
        // Something about the domain as it is: shown beside it.
        Err(refused) if matches!(refused.status, 400 | 409 | 429) => {
            detail::page(dashboard, &posted.session, id, name, None, Some(refused)).await
        }
        Err(refused) => Err(refused.into()),
    }
}
