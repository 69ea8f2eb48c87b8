//! The operator's view: gateways, bans, certificates that end soon, stuck domains, every project.
//!
//! An operator has no API key. `tollhouse dashboard-link` requests a link from the internal API, valid once and for
//! five minutes; opening it shows a button, so that a link preview does not use it up.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::{Query, State};
use axum::response::Response;
use domains_api::Operation;
use domains_api::actor::Origin;
use domains_api::types::{GatewayProcesses, ListedBan, Overview, Project, Projects, Withdrawals};
use serde::Deserialize;
use serde_json::Value;

use super::Dashboard;
use super::control_plane::NotSignedIn;
use super::fault::{Fault, PageResult};
use super::form::Fields;
use super::moment::Moment;
use super::session::{self, Session};
use super::shell::{Section, Shell, html};
use super::words as w;
use chassis::percent::segment;

#[derive(Deserialize)]
pub(super) struct Link {
    link: String,
}

#[derive(Template)]
#[template(path = "enter.html")]
struct EnterPage {
    shell: Shell,
    link: String,
}

/// `GET /enter?link=`.
pub(super) async fn enter(Query(link): Query<Link>) -> Response {
    html(&EnterPage { shell: Shell::outside(w::ENTER), link: link.link })
}

/// `POST /enter`.
pub(super) async fn entered(
    State(dashboard): State<Arc<Dashboard>>,
    Extension(origin): Extension<Origin>,
    fields: Fields,
) -> PageResult {
    match dashboard.control_plane.follow_link(fields.text("link"), origin).await {
        Ok(opened) => session::lead(session::COOKIE, &opened.secret, opened.seconds, "/operator"),
        Err(NotSignedIn::TooManyAttempts(seconds)) => {
            Err(Fault::refused(429, "too_many_attempts", &w::too_many_attempts(seconds)))
        }
        Err(NotSignedIn::Refused(refused)) => Err(refused.into()),
        Err(_) => Err(Fault::refused(403, "link_spent", w::LINK_SPENT)),
    }
}

fn require_operator(session: &Session) -> Result<(), Fault> {
    if session.is_operator() { Ok(()) } else { Err(Fault::nothing_here()) }
}

#[derive(Deserialize)]
struct Status {
    projects: u64,
    keys: u64,
    domains: serde_json::Map<String, Value>,
    certificate_authorities: Vec<String>,
}

#[derive(Template)]
#[template(path = "operator.html")]
struct Page {
    shell: Shell,
    nodes: GatewayProcesses,
    withdrawals: Withdrawals,
    status: Status,
    overview: Overview,
}

/// The owner's label of a banned key, else its id.
fn name_of(ban: &ListedBan) -> &str {
    ban.label.as_deref().filter(|label| !label.is_empty()).unwrap_or(ban.ban.key.as_str())
}

/// `GET /operator`.
pub(super) async fn overview(session: Session) -> PageResult {
    require_operator(&session)?;
    let nodes: GatewayProcesses = session.get(Operation::ListNodes, &[], "").await?;
    let status: Status = session.get(Operation::ShowStatus, &[], "").await?;
    let withdrawals: Withdrawals = session.get(Operation::ListWithdrawals, &[], "").await?;
    let overview: Overview = session.get(Operation::ShowOverview, &[], "").await?;
    let shell = Shell::of(&session, Section::Operator, w::OPERATOR);
    Ok(html(&Page { shell, nodes, withdrawals, status, overview }))
}

#[derive(Deserialize)]
pub(super) struct After {
    after: Option<String>,
}

#[derive(Template)]
#[template(path = "projects.html")]
struct ProjectsPage {
    shell: Shell,
    projects: Vec<Project>,
    next: Option<String>,
}

/// `GET /operator/projects`.
pub(super) async fn projects(session: Session, Query(after): Query<After>) -> PageResult {
    require_operator(&session)?;
    let cursor = after.after.map(|after| format!("&cursor={}", segment(&after))).unwrap_or_default();
    let found: Projects = session.get(Operation::ListProjects, &[], &format!("limit=100{cursor}")).await?;
    let shell = Shell::of(&session, Section::Projects, w::PROJECTS);
    Ok(html(&ProjectsPage { shell, projects: found.projects, next: found.next_cursor }))
}
