//! The operator's view: gateways, bans, certificates that end soon, stuck domains, every project.
//!
//! An operator has no API key. `tollhouse dashboard-link` asks the internal API for a link that is good once and for
//! five minutes; opening it shows a button, so that whatever previews links does not spend it.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use contract::time::UnixMillis;
use http::header;
use serde::Deserialize;
use serde_json::{Value, json};

use super::fault::Fault;
use super::form::Fields;
use super::moment::Moment;
use super::session::{self, Session, operator_digest_of};
use super::shell::{Section, Shell, html};
use super::words as w;
use super::{Dashboard, LABEL};
use crate::actor::Origin;
use crate::api::{edge, projects as api};
use crate::app::App;
use crate::error::Stop;
use crate::store::bans::KnownBan;
use crate::store::credentials::Credential;
use crate::store::overview::{Expiring, Stuck};
use chassis::percent::segment;

/// A link is good this long: five minutes.
const LINK_MILLIS: i64 = 5 * 60 * 1_000;

/// Rows of each list.
const ROWS_MAX: i64 = 20;

/// Bans shown.
const BANS_SHOWN: usize = 20;

/// `POST /internal/dashboard-links`: a link that signs an operator in, once.
pub(super) async fn make_link(
    State(app): State<Arc<App>>,
    Extension(operator): Extension<Credential>,
) -> Result<Response, Stop> {
    let secret = session::random_secret()?;
    let expires_at = app.core.clock.now().plus(LINK_MILLIS);
    app.core.store.save_link(&operator_digest_of(&app, &secret), &operator.name, expires_at).await?;
    let body = json!({
        "host": format!("{LABEL}.{}", app.settings.platform),
        "path": format!("/enter?link={secret}"),
        "expires_at": jiff::Timestamp::from_millisecond(expires_at.0).unwrap_or_default().to_string(),
    });
    Ok((http::StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], axum::Json(body)).into_response())
}

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
) -> Result<Response, Fault> {
    if let Err(seconds) = dashboard.app.api.throttles.sign_in_from(origin.client) {
        return Err(Fault::refused(429, "too_many_attempts", &w::too_many_attempts(seconds)));
    }
    let now = dashboard.app.core.clock.now();
    let digest = operator_digest_of(&dashboard.app, fields.text("link"));
    let Some(operator) = dashboard.app.core.store.spend_link(&digest, now).await? else {
        return Err(Fault::refused(403, "link_spent", w::LINK_SPENT));
    };
    let cookie = session::open(&dashboard, None, Some(operator.clone()), &origin).await?;
    tracing::info!(actor = operator, client = %origin.client, "an operator signed in to the dashboard");
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to("/operator")).into_response())
}

fn require_operator(session: &Session) -> Result<(), Fault> {
    if session.is_operator() { Ok(()) } else { Err(Fault::nothing_here()) }
}

#[derive(Deserialize)]
struct Node {
    #[serde(rename = "node")]
    name: String,
    applied: u64,
    version: String,
    live: bool,
    silent_ms: u64,
}

impl Node {
    fn behind(&self, newest: u64) -> u64 {
        newest.saturating_sub(self.applied)
    }

    fn silent(&self) -> String {
        w::silent(self.silent_ms)
    }
}

#[derive(Deserialize)]
struct Nodes {
    revision: u64,
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Status {
    projects: u64,
    keys: u64,
    domains: serde_json::Map<String, Value>,
    certificate_authorities: Vec<String>,
}

/// What was withdrawn and may be served still.
#[derive(Deserialize)]
struct Withdrawal {
    what: String,
    which: String,
    project: String,
    since: String,
    lagging: Vec<String>,
}

#[derive(Deserialize)]
struct Withdrawals {
    withdrawals: Vec<Withdrawal>,
    total: u64,
}

#[derive(Template)]
#[template(path = "operator.html")]
struct Page {
    shell: Shell,
    nodes: Nodes,
    withdrawals: Vec<(Withdrawal, Option<Moment>)>,
    /// Whether there are more.
    withdrawals_cut: bool,
    status: Status,
    states: Vec<(&'static str, String)>,
    expiring: Vec<(Expiring, Moment)>,
    stuck: Vec<(Stuck, Moment)>,
    bans: Vec<BanRow>,
    /// How many of all bans are shown, where it is not all of them.
    bans_cut: Option<String>,
}

/// A ban on the page.
struct BanRow {
    known: KnownBan,
    until: Moment,
}

impl BanRow {
    fn id(&self) -> &str {
        self.known.ban.key.as_str()
    }

    fn project(&self) -> Option<&str> {
        self.known.holder.as_ref().map(|(project, _)| project.as_str())
    }

    /// What its owner calls the key, if anything.
    fn name(&self) -> &str {
        let label = self.known.holder.as_ref().map(|(_, label)| label.as_str());
        label.filter(|label| !label.is_empty()).unwrap_or(self.id())
    }

    fn why(&self) -> String {
        w::ban_reason(&self.known.ban)
    }

    fn lift(&self) -> String {
        format!("tollhouse ban lift {}", self.id())
    }
}

fn at(millis: i64, now: UnixMillis) -> Moment {
    Moment::at(UnixMillis(millis), now)
}

/// `GET /operator`.
pub(super) async fn overview(State(dashboard): State<Arc<Dashboard>>, session: Session) -> Result<Response, Fault> {
    require_operator(&session)?;
    let actor = &session.actor;
    let nodes: Nodes = dashboard.api.get(actor, &edge::NODES, &[], "").await?;
    let status: Status = dashboard.api.get(actor, &edge::STATUS, &[], "").await?;
    let withdrawals: Withdrawals = dashboard.api.get(actor, &edge::WITHDRAWALS, &[], "").await?;
    let store = &dashboard.app.core.store;
    let now = dashboard.app.core.clock.now();
    let withdrawals_cut = withdrawals.total > withdrawals.withdrawals.len() as u64;
    let withdrawals = withdrawals.withdrawals.into_iter().map(|row| {
        let since = Moment::parse(&row.since, now);
        (row, since)
    });
    let expiring = store.certificates_ending(ROWS_MAX).await?;
    let stuck = store.stuck_domains(ROWS_MAX).await?;
    let bans = store.bans(now, BANS_SHOWN).await?;
    let bans_cut = ((bans.listed.len() as u64) < bans.total).then(|| w::bans_shown(bans.listed.len(), bans.total));
    let bans = bans.listed.into_iter().map(|known| {
        let until = Moment::at(known.ban.until.to_millis(), now);
        BanRow { known, until }
    });
    let states = status.domains.iter().map(|(word, count)| (w::status(word).0, count.to_string())).collect();
    Ok(html(&Page {
        shell: Shell::of(&session, Section::Operator, w::OPERATOR),
        nodes,
        withdrawals: withdrawals.collect(),
        withdrawals_cut,
        states,
        status,
        expiring: expiring.into_iter().map(|row| (row.clone(), at(row.not_after.saturating_mul(1_000), now))).collect(),
        stuck: stuck.into_iter().map(|row| (row.clone(), at(row.since, now))).collect(),
        bans: bans.collect(),
        bans_cut,
    }))
}

#[derive(Deserialize)]
struct Project {
    id: String,
    plan: String,
    host: Option<String>,
    deployed: bool,
    suspended: bool,
}

#[derive(Deserialize)]
struct Projects {
    projects: Vec<Project>,
    next_cursor: Option<String>,
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
pub(super) async fn projects(
    State(dashboard): State<Arc<Dashboard>>,
    session: Session,
    Query(after): Query<After>,
) -> Result<Response, Fault> {
    require_operator(&session)?;
    let cursor = after.after.map(|after| format!("&cursor={}", segment(&after))).unwrap_or_default();
    let found: Projects = dashboard.api.get(&session.actor, &api::ALL, &[], &format!("limit=100{cursor}")).await?;
    let shell = Shell::of(&session, Section::Projects, w::PROJECTS);
    Ok(html(&ProjectsPage { shell, projects: found.projects, next: found.next_cursor }))
}
