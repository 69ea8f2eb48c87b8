//! Server-sent events that tell an open page to reload.
//!
//! An event has no content: the page fetches itself again, so pages are rendered in one place only. A page without
//! events, because its browser runs no script or there are too many pages, reloads periodically.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use contract::key::Scope;
use domains_api::Operation;
use futures_util::stream;
use serde::Deserialize;
use serde_json::Value;

use super::Dashboard;
use super::digest::digest_of;
use super::domains::list::ListQuery;
use super::fault::{Fault, PageResult};
use super::session::Session;
use super::words as w;
use chassis::shares::SharePermit;

/// Interval of the checks for changes.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A stream ends after this number of checks, and the browser reconnects at once. So a session that ended gets no more
/// events, and a gateway that drains does not wait for an open page.
const CHECKS_MAX: u32 = 5;

/// Delay before the browser reconnects.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// Comments are sent this often, so that no proxy on the way closes the connection as idle.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
pub(super) struct What {
    domain: Option<String>,
    /// Which page of the list, and which list.
    #[serde(flatten)]
    look: ListQuery,
}

struct Watch {
    dashboard: Arc<Dashboard>,
    session: Session,
    /// The operation, the parameters of its path, and the query.
    watched: (Operation, Vec<String>, String),
    seen: Option<String>,
    checks: u32,
    _permit: SharePermit,
}

/// `GET /projects/{project}/live?domain=NAME`: an event whenever the domain, or the list of domains, has changed.
pub(super) async fn watch(
    State(dashboard): State<Arc<Dashboard>>,
    session: Session,
    Path(project): Path<String>,
    Query(what): Query<What>,
) -> PageResult {
    session.authorise(&project, Some(Scope::DomainsRead))?;
    let holder = session.project().map_or(session.id.as_str(), |project| project.uid.as_str());
    let Some(permit) = dashboard.watchers.take(holder) else {
        return Err(Fault::refused(503, "too_many_watchers", w::TOO_MANY_WATCHERS));
    };
    let watched = match what.domain {
        Some(domain) => (Operation::ShowDomain, vec![project, domain], String::new()),
        None => (Operation::ListDomains, vec![project], what.look.list_query()),
    };
    let watch = Watch { dashboard, session, watched, seen: None, checks: 0, _permit: permit };
    let events = stream::unfold(watch, |mut watch| async move {
        watch.next_event().await.map(|event| (Ok::<_, Infallible>(event), watch))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

impl Watch {
    /// The next event; `None` when the stream ends.
    async fn next_event(&mut self) -> Option<Event> {
        loop {
            if self.checks >= CHECKS_MAX {
                return None;
            }
            if self.checks > 0 {
                self.dashboard.shutdown.pause(LOOK_INTERVAL).await;
                if self.dashboard.shutdown.has_begun() {
                    return None;
                }
            }
            self.checks += 1;
            let (operation, named, query) = &self.watched;
            let named: Vec<&str> = named.iter().map(String::as_str).collect();
            let found = self.session.call(*operation, (&named, query), &Value::Null).await;
            let state = match found {
                Ok(answered) => digest_of(&answered.body.to_string()),
                Err(refused) if refused.status < 500 => refused.code, // removed, for example: the page reloads too
                Err(_) => continue,
            };
            // The first event has the state that the page compares with.
            if self.seen.as_ref() != Some(&state) {
                self.seen = Some(state.clone());
                return Some(Event::default().event("state").retry(ASK_AGAIN).data(state));
            }
        }
    }
}
