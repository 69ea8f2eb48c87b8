//! The list of a project's domains.

use askama::Template;
use axum::extract::{Path, Query, RawQuery};
use axum::response::Redirect;
use contract::key::Scope;
use serde::Deserialize;
use serde_json::Value;

use super::view::DomainWords as _;
use crate::digest::digest_of;
use crate::fault::PageResult;
use crate::moment::Moment;
use crate::session::Session;
use crate::shell::{Section, Shell, html};
use crate::words as w;
use chassis::percent::segment;
use domains_api::Operation;
use domains_api::types::{Domain, DomainQuota, Domains, Project, Status};

/// Seconds between reloads in a browser without script.
pub(super) const RELOAD_SECONDS: u32 = 15;

/// The filter of the list, and its page.
#[derive(Default, Deserialize)]
pub(crate) struct ListQuery {
    #[serde(default)]
    name: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    after: String,
}

impl ListQuery {
    /// As a query of these pages.
    fn query(&self) -> String {
        let pairs = [("name", &self.name), ("status", &self.status), ("after", &self.after)];
        let pairs = pairs.iter().filter(|(_, value)| !value.is_empty());
        pairs.map(|(name, value)| format!("{name}={}", segment(value))).collect::<Vec<_>>().join("&")
    }

    /// As a query of the API's list.
    pub(crate) fn list_query(&self) -> String {
        let rest = self.query().replace("after=", "cursor=");
        format!("limit=200{}{rest}", if rest.is_empty() { "" } else { "&" })
    }

    fn is_narrow(&self) -> bool {
        !(self.name.is_empty() && self.status.is_empty())
    }
}

/// A state to filter by.
struct Choice {
    status: &'static str,
    word: &'static str,
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
    quota: DomainQuota,
    next: Option<String>,
    may_write: bool,
    notice: Option<&'static str>,
    state: String,
    filter: ListQuery,
    choices: Vec<Choice>,
    /// Whether domains are served, but none of them is primary.
    lacks_primary: bool,
    /// When serving ends, if domains are still served after the plan that included them.
    until: Option<Moment>,
}

/// `GET /projects/{project}`.
pub(crate) async fn home(Path(project): Path<String>) -> Redirect {
    Redirect::to(&format!("/projects/{}/domains", segment(&project)))
}

/// `GET /projects/{project}/domains`.
pub(crate) async fn show(
    session: Session,
    Path(id): Path<String>,
    Query(mut filter): Query<ListQuery>,
    RawQuery(query): RawQuery,
) -> PageResult {
    filter.name = filter.name.trim().to_owned();
    let project_id = session.authorise(&id, Some(Scope::DomainsRead))?;
    let project: Project = session.get(Operation::ShowProject, &[&id], "").await?;
    let wanted = filter.list_query();
    let answered = session.call(Operation::ListDomains, (&[&id], &wanted), &Value::Null).await?;
    let state = digest_of(&answered.body.to_string());
    let list: Domains = answered.read()?;
    let now = session.now();
    let rows: Vec<Row> =
        list.domains.into_iter().map(|domain| Row { ends: domain.certificate_ends(now), domain }).collect();
    let mut shell = Shell::within(&session, &project_id, Section::Domains, w::DOMAINS);
    if rows.iter().any(|row| row.domain.is_moving()) || session.may(Scope::DomainsWrite) {
        // Of this page, not of the first.
        let page = filter.query();
        let mark = if page.is_empty() { "" } else { "?" };
        shell = shell.live(format!("/projects/{project_id}/live{mark}{page}"), RELOAD_SECONDS);
    }
    if !rows.iter().any(|row| row.domain.is_moving()) {
        shell.reload_seconds = None; // nothing to wait for
    }
    let notice = w::notice(&query.unwrap_or_default());
    let until = project.domains_until.as_deref().and_then(|until| Moment::parse(until, now));
    let next = list
        .next_cursor
        .map(|after| ListQuery { after, name: filter.name.clone(), status: filter.status.clone() }.query());
    let lacks_primary = !filter.is_narrow() && filter.after.is_empty() && next.is_none() && {
        let mut served = rows.iter().filter(|row| row.domain.is_served()).peekable();
        served.peek().is_some() && served.all(|row| !row.domain.primary)
    };
    let choices =
        Status::ALL.iter().map(|status| Choice { status: status.as_str(), word: w::status(status.as_str()).0 });
    Ok(html(&Page {
        shell,
        project,
        id: project_id.to_string(),
        rows,
        quota: list.quota,
        next,
        may_write: session.may(Scope::DomainsWrite),
        notice,
        state,
        choices: choices.collect(),
        filter,
        lacks_primary,
        until,
    }))
}
