//! Whether the machine lets processes run: with others in front, their own waits end before they did anything.

use std::collections::HashMap;

/// Waits of less than this are never the reason of a failure, in nanoseconds.
const WAITED_MIN: u64 = 1_000_000_000;

/// On a machine that is only busy, processes wait a few times as long as they run.
const TIMES_BUSY: u64 = 10;

/// How long each process ran, and waited for a processor meanwhile, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times(HashMap<u32, (u64, u64)>);

impl Times {
    /// Of these processes until now.
    pub(crate) fn of(processes: &[u32]) -> Self {
        Self(processes.iter().map(|id| (*id, of_process(*id))).collect())
    }

    /// Whether the processes hardly ran since that moment, those that began since then included.
    pub(crate) fn are_starved_since(&self, earlier: &Self) -> bool {
        let (mut ran, mut waited) = (0, 0);
        for (id, now) in &self.0 {
            let before = earlier.0.get(id).copied().unwrap_or_default();
            ran += now.0.saturating_sub(before.0);
            waited += now.1.saturating_sub(before.1);
        }
        waited > WAITED_MIN && waited > TIMES_BUSY * ran
    }
}

fn of_process(id: u32) -> (u64, u64) {
    let (mut ran, mut waited) = (0, 0);
    for task in std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten() {
        // A thread may have ended meanwhile.
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let mut numbers = text.split(' ').filter_map(|number| number.parse::<u64>().ok());
        ran += numbers.next().unwrap_or(0);
        waited += numbers.next().unwrap_or(0);
    }
    (ran, waited)
}

#[test]
fn only_processes_that_wait_far_longer_than_they_run_are_starved() {
    let starved = |ran: u64, waited: u64| {
        // The second process was killed, the third began.
        let now = Times([(1, (5 + ran / 2, 7 + waited / 2)), (3, (ran / 2, waited / 2))].into());
        now.are_starved_since(&Times([(1, (5, 7)), (2, (9_000_000_000, 9_000_000_000))].into()))
    };
    assert!(starved(480_000_000, 27_700_000_000));
    assert!(!starved(5_000_000_000, 27_700_000_000));
    assert!(!starved(0, 900_000_000));
    let own = of_process(std::process::id());
    assert!(own.0 > 0, "the system counts: {own:?}");
}
