//! The project's domains at a glance.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, RawQuery, State};
use axum::response::{Redirect, Response};
use contract::key::Scope;
use http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::view::Domain;
use crate::dashboard::Dashboard;
use crate::dashboard::fault::Fault;
use crate::dashboard::moment::Moment;
use crate::dashboard::session::{Session, digest_of};
use crate::dashboard::shell::{Section, Shell, html};
use crate::dashboard::words as w;
use crate::error::Stop;
use chassis::percent::segment;

/// Seconds between reloads where there is no script.
pub(super) const RELOAD_SECONDS: u32 = 15;

/// What the API says of a project.
#[derive(Clone, Debug, Deserialize)]
pub(in crate::dashboard) struct Project {
    pub(in crate::dashboard) plan: String,
    pub(in crate::dashboard) limits: Limits,
    pub(in crate::dashboard) access: String,
    pub(in crate::dashboard) deployed: bool,
    pub(in crate::dashboard) suspended: bool,
    pub(in crate::dashboard) host: Option<String>,
    pub(in crate::dashboard) domain_limit: u32,
}

/// Requests per minute and day.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(in crate::dashboard) struct Limits {
    pub(in crate::dashboard) per_minute: u64,
    pub(in crate::dashboard) per_day: u64,
}

#[derive(Deserialize)]
struct List {
    domains: Vec<Domain>,
    quota: Quota,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Quota {
    allocated: u32,
    used: u32,
}

/// One row of the table.
struct Row {
    domain: Domain,
    ends: Option<Moment>,
}

#[derive(Template)]
#[template(path = "domains.html")]
struct Page {
    shell: Shell,
    project: Project,
    id: String,
    rows: Vec<Row>,
    quota: Quota,
    next: Option<String>,
    may_write: bool,
    note: Option<&'static str>,
    state: String,
}

/// `GET /projects/{project}`.
pub(in crate::dashboard) async fn home(Path(project): Path<String>) -> Redirect {
    Redirect::to(&format!("/projects/{}/domains", segment(&project)))
}

/// `GET /projects/{project}/domains`.
pub(in crate::dashboard) async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    session: Session,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Fault> {
    let project_id = session.actor.enter(&id, Some(Scope::DomainsRead)).map_err(Stop::from)?;
    let base = format!("/v1/projects/{}", segment(&id));
    let project: Project = dashboard.api.get(&session.actor, &base).await?;
    let query = query.unwrap_or_default();
    let after = query.strip_prefix("after=").map(segment);
    let cursor = after.as_ref().map(|after| format!("&cursor={after}")).unwrap_or_default();
    let listed = format!("{base}/domains?limit=200{cursor}");
    let answered = dashboard.api.call(&session.actor, Method::GET, &listed, &Value::Null).await?;
    let state = digest_of(&answered.body.to_string());
    let list: List = answered.read()?;
    let now = dashboard.app.clock.now();
    let rows: Vec<Row> =
        list.domains.into_iter().map(|domain| Row { ends: domain.certificate_ends(now), domain }).collect();
    let mut shell = Shell::within(&session, &project_id, Section::Domains, w::DOMAINS);
    if rows.iter().any(|row| row.domain.is_moving()) || session.may(Scope::DomainsWrite) {
        // Of this page, not of the first.
        let page = after.map(|after| format!("?after={after}")).unwrap_or_default();
        shell = shell.live(format!("/projects/{project_id}/live{page}"), RELOAD_SECONDS);
    }
    if !rows.iter().any(|row| row.domain.is_moving()) {
        shell.reload_seconds = None; // nothing to wait for
    }
    let note = w::note(&query);
    Ok(html(&Page {
        shell,
        project,
        id: project_id.to_string(),
        rows,
        quota: list.quota,
        next: list.next_cursor.map(|next| segment(&next)),
        may_write: session.may(Scope::DomainsWrite),
        note,
        state,
    }))
}
