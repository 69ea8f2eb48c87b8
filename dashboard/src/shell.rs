//! The frame of every page: title, navigation, footer.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;

use super::assets;
use super::session::Session;
use domains_api::project::ProjectRef;

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
    pub(super) style: String,
    pub(super) script: String,
}

impl Shell {
    /// For a page within a session.
    pub(super) fn of(session: &Session, section: Section, title: impl Into<String>) -> Self {
        Self {
            section,
            signed_in: true,
            operator: session.is_operator(),
            project: session.project().cloned(),
            csrf: session.csrf.clone(),
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
            style: assets::address("app.css"),
            script: assets::address("app.js"),
        }
    }

    /// A page with change events; a browser without script reloads it every `seconds`.
    pub(super) fn live(mut self, address: String, seconds: u32) -> Self {
        self.live = Some(address);
        self.reload_seconds = Some(seconds);
        self
    }

    /// For templates: whether the page is in a section.
    pub(super) fn is(&self, section: Section) -> bool {
        self.section == section
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
