//! The list of a project's domains.

use askama::Template;
use axum::extract::{Path, Query, RawQuery};
use axum::response::Redirect;
use contract::key::Scope;
use serde::Deserialize;
use serde_json::Value;

use super::view;
use crate::digest::digest_of;
use crate::fault::PageResult;
use crate::session::Session;
use crate::shell::{Section, Shell, html};
use crate::words as w;
use chassis::percent::segment;
use domains_api::Operation;
use domains_api::types::{Domain, DomainQuota, Domains, Project, Status};

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

#[derive(Template)]
#[template(path = "domains.html")]
struct Page {
    shell: Shell,
    project: Project,
    domains: Vec<Domain>,
    quota: DomainQuota,
    next: Option<String>,
    state: String,
    filter: ListQuery,
    /// Whether domains are served, but none of them is primary.
    lacks_primary: bool,
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
    let Domains { domains, next_cursor, quota } = answered.read()?;
    let shell = Shell::within(&session, &project_id, Section::Domains, w::DOMAINS);
    let mut shell = shell.after(w::notice(&query.unwrap_or_default()).map(Ok));
    let waits = domains.iter().any(view::is_moving);
    if waits || shell.may(Scope::DomainsWrite) {
        // Of this page, not of the first.
        let page = filter.query();
        let mark = if page.is_empty() { "" } else { "?" };
        shell = shell.live(format!("/projects/{project_id}/live{mark}{page}"), waits);
    }
    let next =
        next_cursor.map(|after| ListQuery { after, name: filter.name.clone(), status: filter.status.clone() }.query());
    let lacks_primary = !filter.is_narrow() && filter.after.is_empty() && next.is_none() && {
        let mut served = domains.iter().filter(|domain| domain.status.is_served()).peekable();
        served.peek().is_some() && served.all(|domain| !domain.primary)
    };
    Ok(html(&Page { shell, project, domains, quota, next, state, filter, lacks_primary }))
}
