//! Project → Usage: this minute, today, the last 30 days, and what a higher plan would change.
//!
//! The figures are what gateways report every other second: close to the quota, which is counted elsewhere and decides.

mod chart;

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;
use contract::plan::Plan;
use contract::window::Window;

use super::Dashboard;
use super::fault::Fault;
use super::session::Session;
use super::shell::{Section, Shell, html};
use super::words as w;
use crate::api::projects;
use crate::api::types::Project;
use crate::error::Stop;
use crate::plans::Plans;
use crate::store::usage::DayUsage;
use chart::Chart;

/// Days on the chart, today included.
const DAYS: i64 = 30;

const DAY_SECONDS: i64 = 86_400;

/// How much of a limit is spent.
struct Meter {
    name: &'static str,
    spent: i64,
    limit: u64,
    resets: String,
}

impl Meter {
    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.spent.unsigned_abs())
    }

    /// The width of the bar, of 100.
    fn percent(&self) -> u64 {
        (self.spent.unsigned_abs().saturating_mul(100) / self.limit.max(1)).min(100)
    }

    fn tone(&self) -> &'static str {
        match self.percent() {
            ..80 => "good",
            80..100 => "wait",
            _ => "bad",
        }
    }
}

/// A plan beside the project's.
struct Offer {
    plan: &'static str,
    per_minute: String,
    per_day: String,
    domains: u32,
    is_mine: bool,
}

#[derive(Template)]
#[template(path = "usage.html")]
struct Page {
    shell: Shell,
    project: Project,
    meters: [Meter; 2],
    today: DayUsage,
    chart: Chart,
    offers: Vec<Offer>,
}

/// `GET /projects/{project}/usage`.
pub(super) async fn show(
    State(dashboard): State<Arc<Dashboard>>,
    session: Session,
    Path(id): Path<String>,
) -> Result<Response, Fault> {
    let project_id = session.actor.enter(&id, None).map_err(Stop::from)?;
    let project: Project = dashboard.api.get(&session.actor, &projects::SHOW, &[&id], "").await?;
    let now = dashboard.app.core.clock.now_seconds().0;
    let (minute, day) = (now.div_euclid(60), now.div_euclid(DAY_SECONDS));
    let store = &dashboard.app.core.store;
    let days = store.usage(&project_id, day - DAYS + 1).await?;
    let in_minute = store.usage_of_minute(&project_id, minute).await?;
    let today = days.iter().copied().find(|usage| usage.day == day).unwrap_or(DayUsage { day, ..DayUsage::default() });
    let meters = [
        Meter {
            name: "This minute",
            spent: in_minute,
            limit: project.limits.per_minute.get().into(),
            resets: w::resets_in(60 - now.rem_euclid(60)),
        },
        Meter {
            name: w::TODAY,
            spent: today.admitted,
            limit: project.limits.per_day.get().into(),
            resets: w::resets_in(DAY_SECONDS - now.rem_euclid(DAY_SECONDS)),
        },
    ];
    let chart = Chart::of(&days, day - DAYS + 1, day);
    let offers = offers(&dashboard.app.settings.plans, project.plan);
    let mut shell = Shell::within(&session, &project_id, Section::Usage, w::USAGE);
    shell.reload_seconds = Some(30);
    Ok(html(&Page { shell, project, meters, today, chart, offers }))
}

fn offers(plans: &Plans, mine: Plan) -> Vec<Offer> {
    let offer = |plan: &Plan| {
        let grant = plans.of(*plan);
        let stated = |window| match plan {
            Plan::Enterprise => "by agreement".to_owned(),
            _ => chart::thousands(i64::from(grant.limits.of(window))),
        };
        Offer {
            plan: plan.as_str(),
            per_minute: stated(Window::Minute),
            per_day: stated(Window::Day),
            domains: grant.domains,
            is_mine: *plan == mine,
        }
    };
    Plan::ALL.iter().map(offer).collect()
}
