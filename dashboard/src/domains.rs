//! Project → Domains: the attached domains, their problems, and the fixes. The pages are below; the buttons of a
//! domain's page are here.

mod add;
mod detail;
pub(super) mod list;
mod remove;
mod steps;
mod view;

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect};
use axum::routing::{get, post};
use chassis::percent::segment;
use domains_api::Operation;
use serde_json::{Value, json};

use super::Dashboard;
use super::fault::PageResult;
use super::form::Posted;

/// The pages and buttons, below the project's path.
pub(super) fn routes() -> Router<Arc<Dashboard>> {
    Router::new()
        .route("/", get(list::home))
        .route("/domains", get(list::show))
        .route("/domains/new", get(add::show).post(add::add))
        .route("/domains/{domain}", get(detail::show))
        .route("/domains/{domain}/verify", post(verify))
        .route("/domains/{domain}/primary", post(primary))
        .route("/domains/{domain}/redirect", post(redirect))
        .route("/domains/{domain}/remove", get(remove::ask).post(remove::remove))
}

/// `POST …/verify`: checks DNS now.
async fn verify(Path((id, name)): Path<(String, String)>, posted: Posted) -> PageResult {
    carry_out(&posted, &id, &name, Operation::VerifyDomain, &Value::Null, "verified").await
}

/// `POST …/primary`.
async fn primary(Path((id, name)): Path<(String, String)>, posted: Posted) -> PageResult {
    let body = json!({ "primary": !posted.fields.is_set("off") });
    carry_out(&posted, &id, &name, Operation::ChangeDomain, &body, "saved").await
}

/// `POST …/redirect`.
async fn redirect(Path((id, name)): Path<(String, String)>, posted: Posted) -> PageResult {
    let to = posted.fields.text("to");
    let rule = match posted.fields.text("status").parse::<u16>() {
        _ if to.is_empty() => Value::Null,
        Ok(status) => json!({ "to": to, "status": status }),
        Err(_) => json!({ "to": to }),
    };
    carry_out(&posted, &id, &name, Operation::ChangeDomain, &json!({ "redirect": rule }), "saved").await
}

async fn carry_out(
    posted: &Posted,
    id: &str,
    name: &str,
    operation: Operation,
    body: &Value,
    notice: &str,
) -> PageResult {
    match posted.session.call(operation, (&[id, name], ""), body).await {
        Ok(answered) => {
            let notice = if answered.status == 202 { "verifying" } else { notice };
            let place = format!("/projects/{}/domains/{}?{notice}", segment(id), segment(name));
            Ok(Redirect::to(&place).into_response())
        }
        // A problem of the domain itself: shown beside it.
        Err(refused) if matches!(refused.status, 400 | 409 | 429) => {
            detail::page(&posted.session, id, name, Some(Err(refused))).await
        }
        Err(refused) => Err(refused.into()),
    }
}
