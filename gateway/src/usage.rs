//! Usage for the dashboard: requests per project and day, and the last use of each key, kept in memory and reported
//! every two seconds with the bans in force.
//!
//! For display only; quotas do not depend on it. The figures of a day are absolute, so a lost or repeated report does
//! no harm, and they wait while the control plane is unavailable. A process that ends loses its last two seconds.
//! Beyond `PROJECTS_MAX` projects in one day, further ones are not counted until the next day.

mod keys;
mod report;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use contract::project::ProjectUid;
use contract::time::UnixMillis;
use contract::usage::UsageOfProject;
use contract::window::Window;
use parking_lot::Mutex;

pub(crate) use keys::KeyUses;
pub(crate) use report::Reporter;

contract::words! {
    /// The decision of a charge.
    pub enum Decision {
        /// A unit of both windows was spent.
        Admitted = "admitted",
        /// The minute was used up.
        RefusedMinute = "refused_minute",
        /// The day was used up.
        RefusedDay = "refused_day",
        /// The key is banned.
        Banned = "banned",
        /// The quota store was unavailable.
        Unavailable = "unavailable",
        /// A limit in shadow mode would have refused it.
        Shadow = "shadow",
    }
}

/// Projects counted in one day.
const PROJECTS_MAX: usize = 100_000;

/// Parts of the map, so that requests of different projects do not wait for one lock.
const PARTS: usize = 16;

/// One project's day.
#[derive(Clone, Debug, Default)]
struct Page {
    day: i64,
    admitted: u64,
    refused: u64,
    banned: u64,
    minute: i64,
    in_minute: u64,
    /// Not reported yet in its current state.
    is_news: bool,
}

/// Requests per project, and the used keys.
pub(crate) struct UsageCounts {
    /// The last use of each key.
    pub keys: KeyUses,
    parts: Vec<Mutex<HashMap<ProjectUid, Page>>>,
    /// Days that ended before they were completely reported.
    ended: Mutex<Vec<UsageOfProject>>,
    hasher: RandomState,
}

impl Default for UsageCounts {
    fn default() -> Self {
        Self {
            keys: KeyUses::default(),
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            ended: Mutex::default(),
            hasher: RandomState::new(),
        }
    }
}

impl UsageCounts {
    /// Counts a request that was charged or refused because of its quota.
    pub(crate) fn count(&self, project: &ProjectUid, decision: Decision, now: UnixMillis) {
        let Some(part) = self.part(project) else { return };
        let (day, minute) = (Window::Day.index(now), Window::Minute.index(now));
        let mut pages = part.lock();
        if !pages.contains_key(project) && pages.len() >= PROJECTS_MAX / PARTS {
            pages.retain(|_, page| page.day == day || page.is_news);
            if pages.len() >= PROJECTS_MAX / PARTS {
                return;
            }
        }
        let page = pages.entry(project.clone()).or_default();
        if page.day != day {
            let old = std::mem::replace(page, Page { day, ..Page::default() });
            let mut ended = self.ended.lock();
            if old.is_news && ended.len() < PROJECTS_MAX {
                ended.push(usage(project, &old));
            }
        }
        match decision {
            Decision::Admitted | Decision::Shadow => {
                page.admitted += 1;
                page.in_minute = if page.minute == minute { page.in_minute + 1 } else { 1 };
                page.minute = minute;
            }
            Decision::RefusedMinute | Decision::RefusedDay => page.refused += 1,
            Decision::Banned => page.banned += 1,
            // Our own fault, and the project spent nothing.
            Decision::Unavailable => return,
        }
        page.is_news = true;
    }

    /// Takes up to `max` projects with unreported figures and marks them as reported; [`UsageCounts::give_back`]
    /// reverts that.
    fn take(&self, max: usize) -> Vec<UsageOfProject> {
        let mut ended = self.ended.lock();
        let keep = ended.len().saturating_sub(max);
        let mut taken = ended.split_off(keep);
        drop(ended);
        for part in &self.parts {
            for (project, page) in part.lock().iter_mut().filter(|(_, page)| page.is_news) {
                if taken.len() >= max {
                    return taken;
                }
                page.is_news = false;
                taken.push(usage(project, page));
            }
        }
        taken
    }

    /// Returns figures that could not be reported.
    fn give_back(&self, taken: Vec<UsageOfProject>) {
        for usage in taken {
            let Some(part) = self.part(&usage.project) else { continue };
            match part.lock().get_mut(&usage.project) {
                Some(page) if page.day == usage.day => page.is_news = true,
                _ => self.ended.lock().push(usage),
            }
        }
    }

    fn part(&self, project: &ProjectUid) -> Option<&Mutex<HashMap<ProjectUid, Page>>> {
        self.parts.get(usize::try_from(self.hasher.hash_one(project) % PARTS as u64).unwrap_or(0))
    }
}

fn usage(project: &ProjectUid, page: &Page) -> UsageOfProject {
    UsageOfProject {
        project: project.clone(),
        day: page.day,
        admitted: page.admitted,
        refused: page.refused,
        banned: page.banned,
        minute: page.minute,
        in_minute: page.in_minute,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-06-15T23:59:58Z.
    const NOW: UnixMillis = UnixMillis(1_781_567_998_000);

    fn counts_with(decisions: &[(Decision, UnixMillis)]) -> UsageCounts {
        let counts = UsageCounts::default();
        let project: ProjectUid = "demo".parse().unwrap();
        for (decision, at) in decisions {
            counts.count(&project, *decision, *at);
        }
        counts
    }

    #[test]
    fn a_day_is_counted_and_reported_once_until_it_changes() {
        let counts = counts_with(&[
            (Decision::Admitted, NOW.plus(-60_000)),
            (Decision::Admitted, NOW),
            (Decision::Shadow, NOW),
            (Decision::RefusedMinute, NOW),
            (Decision::RefusedDay, NOW),
            (Decision::Banned, NOW),
            (Decision::Unavailable, NOW),
        ]);
        let taken = counts.take(10);
        assert_eq!(taken.len(), 1);
        let usage = &taken[0];
        assert_eq!((usage.admitted, usage.refused, usage.banned, usage.in_minute), (3, 2, 1, 2));
        assert_eq!((usage.day, usage.minute), (20_619, 29_692_799));
        assert!(counts.take(10).is_empty(), "nothing is new");
        counts.give_back(taken.clone());
        assert_eq!(counts.take(10), taken, "until it could not be reported");
    }

    #[test]
    fn a_day_that_ended_is_reported_beside_the_new_one() {
        let counts = counts_with(&[(Decision::Admitted, NOW), (Decision::Admitted, NOW.plus(3_000))]);
        let mut days: Vec<(i64, u64)> = counts.take(10).iter().map(|usage| (usage.day, usage.admitted)).collect();
        days.sort_unstable();
        assert_eq!(days, [(20_619, 1), (20_620, 1)]);
    }

    #[test]
    fn a_report_is_bounded_and_the_next_one_continues() {
        let counts = UsageCounts::default();
        for number in 0..7 {
            counts.count(&format!("p{number}").parse().unwrap(), Decision::Admitted, NOW);
        }
        assert_eq!((counts.take(5).len(), counts.take(5).len(), counts.take(5).len()), (5, 2, 0));
    }
}
