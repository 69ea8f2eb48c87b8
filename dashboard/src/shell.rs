//! The frame of every page: title, navigation, footer.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use contract::key::{Scope, Scopes};
use contract::time::UnixMillis;
use http::StatusCode;

use super::control_plane::Refused;
use super::moment::Moment;
use super::session::Session;
use domains_api::project::ProjectRef;

/// Seconds between reloads in a browser without script.
const RELOAD_SECONDS: u32 = 15;

/// The section of a project that a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    None,
    Domains,
    Keys,
    Usage,
    Activity,
    Webhooks,
    Operator,
    Projects,
}

/// The frame of a page.
pub(super) struct Shell {
    pub(super) title: String,
    pub(super) section: Section,
    pub(super) signed_in: bool,
    pub(super) operator: bool,
    pub(super) project: Option<ProjectRef>,
    pub(super) csrf: String,
    /// The address of the page's change events.
    pub(super) live: Option<String>,
    /// Seconds after which a browser without script reloads.
    pub(super) reload_seconds: Option<u32>,
    /// The result of the form that led here.
    pub(super) outcome: Outcome,
    pub(super) now: UnixMillis,
    scopes: Scopes,
}

/// The result of a form: a confirmation or a refusal.
pub(super) type Outcome = Option<Result<&'static str, Refused>>;

impl Shell {
    /// For a page within a session.
    pub(super) fn of(session: &Session, section: Section, title: impl Into<String>) -> Self {
        Self {
            section,
            signed_in: true,
            operator: session.is_operator(),
            project: session.project().cloned(),
            csrf: session.csrf.clone(),
            now: session.now(),
            scopes: session.scopes.clone(),
            ..Self::outside(title)
        }
    }

    /// For a page of a project.
    pub(super) fn within(session: &Session, project: &ProjectRef, section: Section, title: impl Into<String>) -> Self {
        Self { project: Some(project.clone()), ..Self::of(session, section, title) }
    }

    /// For a page without a session.
    pub(super) fn outside(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            section: Section::None,
            signed_in: false,
            operator: false,
            project: None,
            csrf: String::new(),
            live: None,
            reload_seconds: None,
            outcome: None,
            now: UnixMillis(0),
            scopes: Scopes::default(),
        }
    }

    /// A page with change events; a browser without script reloads it while it `waits` for one.
    pub(super) fn live(self, address: String, waits: bool) -> Self {
        Self { live: Some(address), reload_seconds: waits.then_some(RELOAD_SECONDS), ..self }
    }

    /// The page after a form.
    pub(super) fn after(self, outcome: Outcome) -> Self {
        Self { outcome, ..self }
    }

    /// The status of the page: a refusal's, if it shows one.
    pub(super) fn status(&self) -> u16 {
        if let Some(Err(refused)) = &self.outcome { refused.status } else { 200 }
    }

    /// For templates: whether the page is in a section.
    pub(super) fn is(&self, section: Section) -> bool {
        self.section == section
    }

    /// For templates: the name of the project in addresses.
    pub(super) fn id(&self) -> &str {
        self.project.as_ref().map_or("", |project| project.name.as_str())
    }

    /// For templates: whether the user's key has this scope.
    pub(super) fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(scope)
    }

    /// For templates: a time of the API, relative to now.
    pub(super) fn moment(&self, text: &str) -> Option<Moment> {
        Moment::parse(text, self.now)
    }

    /// For templates: the same, if there is one.
    pub(super) fn moment_if(&self, text: Option<&str>) -> Option<Moment> {
        self.moment(text?)
    }
}

/// A page.
pub(super) fn html(page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => Html(text).into_response(),
        Err(error) => {
            tracing::error!(%error, "cannot render a page; answered 500. This is a defect: report it");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// A page with a status other than 200.
pub(super) fn html_with(status: u16, page: &impl Template) -> Response {
    let mut response = html(page);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}
