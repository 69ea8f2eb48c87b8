//! Whether the machine lets processes run: with others in front, their own waits end before they did anything.

/// Waits of less than this are never the reason of a failure, in nanoseconds.
const WAITED_MIN: u64 = 1_000_000_000;

/// On a machine that is only busy, processes wait a few times as long as they run.
const TIMES_BUSY: u64 = 10;

/// How long processes ran, and waited for a processor meanwhile, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    ran: u64,
    waited: u64,
}

impl Times {
    /// Of these processes until now.
    pub(crate) fn of(processes: &[u32]) -> Self {
        let mut times = Self::default();
        let tasks = processes.iter().filter_map(|id| std::fs::read_dir(format!("/proc/{id}/task")).ok());
        for task in tasks.flatten().flatten() {
            // A thread may have ended meanwhile.
            let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let mut numbers = text.split(' ').filter_map(|number| number.parse::<u64>().ok());
            times.ran += numbers.next().unwrap_or(0);
            times.waited += numbers.next().unwrap_or(0);
        }
        times
    }

    /// Whether the processes hardly ran since that moment.
    pub(crate) fn are_starved_since(self, earlier: Self) -> bool {
        let (ran, waited) = (self.ran.saturating_sub(earlier.ran), self.waited.saturating_sub(earlier.waited));
        waited > WAITED_MIN && waited > TIMES_BUSY * ran
    }
}

#[test]
fn only_processes_that_wait_far_longer_than_they_run_are_starved() {
    let starved = |ran: u64, waited: u64| {
        Times { ran: 5 + ran, waited: 7 + waited }.are_starved_since(Times { ran: 5, waited: 7 })
    };
    assert!(starved(480_000_000, 27_700_000_000));
    assert!(!starved(5_000_000_000, 27_700_000_000));
    assert!(!starved(0, 900_000_000));
    let own = Times::of(&[std::process::id()]);
    assert!(own.ran > 0, "the system counts: {own:?}");
}
