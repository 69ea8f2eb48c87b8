//! One domain: its progress, its problems, the records to create, and the records that DNS has.

use askama::Template;
use axum::extract::{Path, RawQuery};
use contract::key::Scope;
use serde_json::Value;

use super::steps::{self, Step};
use super::view;
use crate::activity;
use crate::digest::digest_of;
use crate::fault::PageResult;
use crate::session::Session;
use crate::shell::{Outcome, Section, Shell, html_with};
use crate::words as w;
use chassis::percent::segment;
use domains_api::Operation;
use domains_api::types::{Domain, Domains, Event, Events};

/// Events shown on the page of a domain.
const EVENTS_MAX: usize = 12;

#[derive(Template)]
#[template(path = "domain.html")]
struct Page {
    shell: Shell,
    domain: Domain,
    steps: Vec<Step>,
    events: Vec<Event>,
    certificates: Vec<Event>,
    targets: Vec<String>,
    has_primary: bool,
    state: String,
}

impl Page {
    fn redirect_is(&self, to: &str) -> bool {
        self.domain.redirect.as_ref().is_some_and(|redirect| redirect.to == to)
    }

    fn status_is(&self, status: u16) -> bool {
        self.domain.redirect.as_ref().and_then(|redirect| redirect.status).unwrap_or(0) == status
    }
}

/// `GET …/domains/{domain}`.
pub(crate) async fn show(
    session: Session,
    Path((id, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> PageResult {
    page(&session, &id, &name, w::notice(&query.unwrap_or_default()).map(Ok)).await
}

/// The page of a domain.
pub(super) async fn page(session: &Session, id: &str, name: &str, outcome: Outcome) -> PageResult {
    let project = session.authorise(id, Some(Scope::DomainsRead))?;
    let place = [project.name.as_str(), name];
    let answered = session.call(Operation::ShowDomain, (&place, ""), &Value::Null).await?;
    let state = digest_of(&answered.body.to_string());
    let domain: Domain = answered.read()?;
    let Events { mut events, .. } = session.get(Operation::ListDomainEvents, &place, "").await?;
    let others: Domains = session.get(Operation::ListDomains, &[project.name.as_str()], "limit=200").await?;
    let certificates = events.iter().filter(|event| event.kind.starts_with("domain.certificate.")).cloned().collect();
    events.truncate(EVENTS_MAX);
    // Also one that becomes it when it is live: the redirect can be prepared.
    let has_role = others.domains.iter().any(|other| other.primary);
    let may_become = |other: &Domain| !has_role && !other.status.is_served() && other.redirect.is_none();
    let has_primary =
        others.domains.iter().any(|other| other.name != domain.name && (other.primary || may_become(other)));
    let targets = others
        .domains
        .iter()
        .filter(|other| other.name != domain.name && other.status.is_served() && other.redirect.is_none());
    let mut targets: Vec<String> = targets.map(|other| other.name.to_string()).collect();
    // Where it leads now is a choice, served or not: saving something else must not take the redirect away.
    let now_to = domain.redirect.as_ref().map(|redirect| redirect.to.clone()).filter(|to| to != "primary");
    targets.extend(now_to.filter(|to| !targets.contains(to)));
    let live = format!("/projects/{project}/live?domain={}", segment(domain.name.as_str()));
    let waits = !domain.status.is_served();
    let shown = |said| if waits && Some(said) == w::notice("verified") { w::CHECKED_NOT_YET } else { said };
    let shell = Shell::within(session, &project, Section::Domains, domain.name.to_string())
        .live(live, view::is_moving(&domain))
        .after(outcome.map(|outcome| outcome.map(shown)));
    let steps = steps::of(&domain);
    Ok(html_with(shell.status(), &Page { shell, domain, steps, events, certificates, targets, has_primary, state }))
}
