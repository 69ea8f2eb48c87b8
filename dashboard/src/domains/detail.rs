//! One domain: its progress, its problems, the records to create, and the records that DNS has.

use askama::Template;
use axum::extract::{Path, RawQuery};
use contract::key::Scope;
use serde_json::Value;

use super::list::RELOAD_SECONDS;
use super::steps::{self, Step};
use super::view::{DomainWords as _, ProblemWords as _, RecordWords as _};
use crate::activity::{Entry, entries};
use crate::control_plane::Refused;
use crate::digest::digest_of;
use crate::fault::PageResult;
use crate::moment::Moment;
use crate::session::Session;
use crate::shell::{Section, Shell, html_with};
use crate::words as w;
use chassis::percent::segment;
use domains_api::Operation;
use domains_api::types::{Domain, Domains, Events};

/// Events shown on the page of a domain.
const EVENTS_MAX: usize = 12;

/// Dates of the certificate.
struct CertificateTimes {
    from: Option<Moment>,
    until: Option<Moment>,
    renewal: Option<Moment>,
    next_attempt: Option<Moment>,
}

#[derive(Template)]
#[template(path = "domain.html")]
struct Page {
    shell: Shell,
    id: String,
    domain: Domain,
    steps: Vec<Step>,
    checked: Option<Moment>,
    next_check: Option<Moment>,
    times: CertificateTimes,
    events: Vec<Entry>,
    certificates: Vec<Entry>,
    targets: Vec<String>,
    has_primary: bool,
    may_write: bool,
    notice: Option<&'static str>,
    problem: Option<Refused>,
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
    page(&session, &id, &name, w::notice(&query.unwrap_or_default()), None).await
}

/// The page of a domain, with the refusal of the last form, if any.
pub(super) async fn page(
    session: &Session,
    id: &str,
    name: &str,
    notice: Option<&'static str>,
    problem: Option<Refused>,
) -> PageResult {
    let project = session.authorise(id, Some(Scope::DomainsRead))?;
    let place = [project.name.as_str(), name];
    let answered = session.call(Operation::ShowDomain, (&place, ""), &Value::Null).await?;
    let state = digest_of(&answered.body.to_string());
    let domain: Domain = answered.read()?;
    let events: Events = session.get(Operation::ListDomainEvents, &place, "").await?;
    let others: Domains = session.get(Operation::ListDomains, &[project.name.as_str()], "limit=200").await?;
    let now = session.now();
    let moment = |text: Option<&str>| text.and_then(|text| Moment::parse(text, now));
    let certificate = &domain.certificate;
    let times = CertificateTimes {
        from: moment(certificate.not_before.as_deref()),
        until: moment(certificate.not_after.as_deref()),
        renewal: moment(certificate.renew_at.as_deref()),
        next_attempt: moment(certificate.next_attempt_at.as_deref()),
    };
    let entries = entries(&events, now);
    let certificates = entries.iter().filter(|entry| entry.kind.starts_with("domain.certificate.")).cloned().collect();
    // Also one that becomes it when it is live: the redirect can be prepared.
    let has_role = others.domains.iter().any(|other| other.primary);
    let may_become = |other: &Domain| !has_role && !other.is_served() && other.redirect.is_none();
    let has_primary =
        others.domains.iter().any(|other| other.name != domain.name && (other.primary || may_become(other)));
    let targets = others
        .domains
        .iter()
        .filter(|other| other.name != domain.name && other.is_served() && other.redirect.is_none());
    let mut targets: Vec<String> = targets.map(|other| other.name.to_string()).collect();
    // Where it leads now is a choice, served or not: saving something else must not take the redirect away.
    let now_to = domain.redirect.as_ref().map(|redirect| redirect.to.clone()).filter(|to| to != "primary");
    targets.extend(now_to.filter(|to| !targets.contains(to)));
    let mut shell = Shell::within(session, &project, Section::Domains, domain.name.to_string());
    shell = shell.live(format!("/projects/{project}/live?domain={}", segment(domain.name.as_str())), RELOAD_SECONDS);
    if !domain.is_moving() {
        shell.reload_seconds = None;
    }
    let status = problem.as_ref().map_or(200, |refused| refused.status);
    let notice = if notice == w::notice("verified") && !domain.is_served() { Some(w::CHECKED_NOT_YET) } else { notice };
    let page = Page {
        shell,
        id: project.to_string(),
        steps: steps::of(&domain),
        checked: moment(domain.checks.as_ref().map(|checks| &*checks.at)),
        next_check: moment(domain.next_check_at.as_deref()),
        times,
        events: entries.into_iter().take(EVENTS_MAX).collect(),
        certificates,
        targets,
        has_primary,
        may_write: session.may(Scope::DomainsWrite),
        notice,
        problem,
        state,
        domain,
    };
    Ok(html_with(status, &page))
}
