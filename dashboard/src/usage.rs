//! Project → Usage: this minute, today, the last 30 days, and the limits of higher plans.
//!
//! The figures are what gateways report every two seconds: close to the quota, which the gateways count separately.

mod chart;

use askama::Template;
use axum::extract::Path;
use contract::plan::Plan;
use contract::window::Window;

use super::fault::PageResult;
use super::session::Session;
use super::shell::{Section, Shell, html};
use super::words as w;
use chart::Chart;
use domains_api::Operation;
use domains_api::types::{PlanGrant, Project, USAGE_DAYS, Usage, UsageOfDay};

const DAY_SECONDS: i64 = 86_400;

/// The used part of a limit.
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

#[derive(Template)]
#[template(path = "usage.html")]
struct Page {
    shell: Shell,
    project: Project,
    meters: [Meter; 2],
    today: UsageOfDay,
    chart: Chart,
    plans: Vec<PlanGrant>,
}

/// `GET /projects/{project}/usage`.
pub(super) async fn show(session: Session, Path(id): Path<String>) -> PageResult {
    let project_id = session.authorise(&id, None)?;
    let project: Project = session.get(Operation::ShowProject, &[&id], "").await?;
    let usage: Usage = session.get(Operation::ShowUsage, &[&id], "").await?;
    let now = session.now().to_seconds().0;
    let day = now.div_euclid(DAY_SECONDS);
    let today = usage.days.iter().find(|usage| usage.date == chart::date(day)).cloned().unwrap_or_default();
    let meters = [
        Meter {
            name: "This minute",
            spent: usage.in_minute,
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
    let chart = Chart::of(&usage.days, day - USAGE_DAYS + 1, day);
    let mut shell = Shell::within(&session, &project_id, Section::Usage, w::USAGE);
    shell.reload_seconds = Some(30);
    Ok(html(&Page { shell, project, meters, today, chart, plans: usage.plans }))
}

/// The limit of a plan.
fn stated(grant: &PlanGrant, window: Window) -> String {
    match grant.plan {
        Plan::Enterprise => "by agreement".to_owned(),
        _ => chart::thousands(i64::from(grant.limits.of(window))),
    }
}
