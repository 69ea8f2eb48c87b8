//! The operator's view: gateways, bans, certificates that end soon, stuck domains, every project.
//!
//! An operator has no API key. `tollhouse dashboard-link` requests a link from the internal API, valid once and for
//! five minutes; opening it shows a button, so that a link preview does not use it up.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use contract::project::ProjectId;
use domains_api::Operation;
use domains_api::actor::Origin;
use domains_api::types::{
    EndingCertificate, GatewayProcesses, ListedBan, ListedWithdrawal, Overview, Project, Projects, StuckDomain,
    Withdrawals,
};
use http::header;
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
        Ok(opened) => {
            Ok(([(header::SET_COOKIE, session::cookie_of(&opened)?)], Redirect::to("/operator")).into_response())
        }
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
    withdrawals: Vec<(ListedWithdrawal, Option<Moment>)>,
    /// Whether there are more.
    withdrawals_cut: bool,
    status: Status,
    states: Vec<(&'static str, String)>,
    expiring: Vec<(EndingCertificate, Moment)>,
    stuck: Vec<(StuckDomain, Moment)>,
    bans: Vec<BanRow>,
    /// The number of bans shown, if there are more.
    bans_cut: Option<String>,
}

/// A ban on the page.
struct BanRow {
    known: ListedBan,
    until: Moment,
}

impl BanRow {
    fn id(&self) -> &str {
        self.known.ban.key.as_str()
    }

    fn project(&self) -> Option<&str> {
        self.known.project.as_ref().map(ProjectId::as_str)
    }

    /// The owner's label of the key, if any.
    fn name(&self) -> &str {
        let label = self.known.label.as_deref();
        label.filter(|label| !label.is_empty()).unwrap_or(self.id())
    }

    fn why(&self) -> String {
        w::ban_reason(&self.known.ban)
    }

    fn lift(&self) -> String {
        format!("tollhouse ban lift {}", self.id())
    }
}

/// `GET /operator`.
pub(super) async fn overview(session: Session) -> PageResult {
    require_operator(&session)?;
    let nodes: GatewayProcesses = session.get(Operation::ListNodes, &[], "").await?;
    let status: Status = session.get(Operation::ShowStatus, &[], "").await?;
    let withdrawals: Withdrawals = session.get(Operation::ListWithdrawals, &[], "").await?;
    let overview: Overview = session.get(Operation::ShowOverview, &[], "").await?;
    let now = session.now();
    let withdrawals_cut = i64::try_from(withdrawals.withdrawals.len()).is_ok_and(|listed| listed < withdrawals.total);
    let withdrawals = withdrawals.withdrawals.into_iter().map(|row| {
        let since = Moment::parse(&row.withdrawal.since, now);
        (row, since)
    });
    let shown = overview.bans.len();
    let bans = overview.bans.into_iter().map(|known| {
        let until = Moment::at(known.ban.until.to_millis(), now);
        BanRow { known, until }
    });
    let expiring = overview.certificates_ending.into_iter().filter_map(|row| {
        let end = Moment::parse(&row.not_after, now)?;
        Some((row, end))
    });
    let stuck = overview.domains_stuck.into_iter().filter_map(|row| {
        let since = Moment::parse(&row.since, now)?;
        Some((row, since))
    });
    let states = status.domains.iter().map(|(word, count)| (w::status(word).0, count.to_string())).collect();
    Ok(html(&Page {
        shell: Shell::of(&session, Section::Operator, w::OPERATOR),
        nodes,
        withdrawals: withdrawals.collect(),
        withdrawals_cut,
        states,
        status,
        expiring: expiring.collect(),
        stuck: stuck.collect(),
        bans: bans.collect(),
        bans_cut: ((shown as u64) < overview.bans_total).then(|| w::bans_shown(shown, overview.bans_total)),
    }))
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
