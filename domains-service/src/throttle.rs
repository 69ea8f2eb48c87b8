//! How often somebody may ask for a check: once in ten seconds per domain, thirty times a minute per project.
//!
//! In memory and bounded. What is forgotten early only lets somebody ask a little sooner.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chassis::clock::Clock;
use contract::project::ProjectId;
use moka::sync::Cache;
use parking_lot::Mutex;

/// Between two checks of one domain.
pub(crate) const DOMAIN_INTERVAL: Duration = Duration::from_secs(10);

/// Checks a project may ask for in [`PROJECT_WINDOW`].
const PROJECT_CHECKS_MAX: usize = 30;
const PROJECT_WINDOW: Duration = Duration::from_mins(1);

/// Domains and projects remembered.
const REMEMBERED_MAX: u64 = 100_000;

/// Who asked when.
pub(crate) struct Throttles {
    clock: Arc<dyn Clock>,
    domains: Cache<String, Duration>,
    projects: Cache<ProjectId, Arc<Mutex<VecDeque<Duration>>>>,
}

impl Throttles {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            domains: Cache::builder().max_capacity(REMEMBERED_MAX).build(),
            projects: Cache::builder().max_capacity(REMEMBERED_MAX).build(),
        }
    }

    /// Notes that a check of `domain` is asked for, or says how long to wait first.
    pub(crate) fn check(&self, project: &ProjectId, domain: &str) -> Result<(), Duration> {
        let now = self.clock.monotonic();
        let asked = self.projects.get_with(project.clone(), Arc::default);
        // The lock orders those who ask at the same moment.
        let mut asked = asked.lock();
        while asked.front().is_some_and(|at| now.saturating_sub(*at) >= PROJECT_WINDOW) {
            asked.pop_front();
        }
        let key = format!("{project} {domain}");
        if let Some(last) = self.domains.get(&key) {
            let since = now.saturating_sub(last);
            if since < DOMAIN_INTERVAL {
                return Err(DOMAIN_INTERVAL.saturating_sub(since));
            }
        }
        if asked.len() >= PROJECT_CHECKS_MAX {
            let oldest = asked.front().copied().unwrap_or(now);
            return Err(PROJECT_WINDOW.saturating_sub(now.saturating_sub(oldest)));
        }
        asked.push_back(now);
        self.domains.insert(key, now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use chassis::clock::ManualClock;
    use contract::time::UnixMillis;

    use super::*;

    #[test]
    fn a_domain_is_checked_once_in_ten_seconds_and_a_project_thirty_times_a_minute() {
        let clock = Arc::new(ManualClock::at(UnixMillis(0)));
        let throttles = Throttles::new(clock.clone());
        let project: ProjectId = "demo".parse().unwrap();
        assert_eq!(throttles.check(&project, "a.example"), Ok(()));
        clock.advance(Duration::from_secs(4));
        assert_eq!(throttles.check(&project, "a.example"), Err(Duration::from_secs(6)));
        assert_eq!(throttles.check(&project, "b.example"), Ok(()));
        for index in 0..28 {
            assert_eq!(throttles.check(&project, &format!("{index}.example")), Ok(()));
        }
        assert_eq!(throttles.check(&project, "c.example"), Err(Duration::from_secs(56)));
        assert_eq!(throttles.check(&"other".parse().unwrap(), "c.example"), Ok(()));
        clock.advance(Duration::from_secs(56));
        assert_eq!(throttles.check(&project, "c.example"), Ok(()));
    }
}
