use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

const NAME: &str = "test_task_restarts_total";

fn supervisor() -> (Supervisor, Registry) {
    let registry = Registry::new();
    (Supervisor::register(&registry, NAME).unwrap(), registry)
}

/// The exported restarts of a task.
fn restarts(registry: &Registry, task: &str) -> Option<String> {
    let series = format!("{NAME}{{task=\"{task}\"}} ");
    let text = crate::metrics::render(registry).unwrap();
    text.lines().find_map(|line| line.strip_prefix(&series).map(str::to_owned))
}

// promise: faults.23
#[tokio::test(start_paused = true)]
async fn a_panic_restarts_one_task_while_others_continue() {
    let ((supervisor, registry), end) = (supervisor(), Shutdown::new());
    let (starts, beats) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    supervisor.spawn("fragile", &end, starts.clone(), |starts, _| async move {
        let start = starts.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(start >= 2, "start {start}");
        std::future::pending::<()>().await;
    });
    supervisor.spawn("steady", &end, beats.clone(), |beats, _| async move {
        loop {
            beats.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert_eq!(restarts(&registry, "fragile").as_deref(), Some("0"), "the series exists before the first panic");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(starts.load(Ordering::Relaxed), 1, "it pauses");
    assert!(beats.load(Ordering::Relaxed) > 400, "the other task continues");
    assert_eq!(supervisor.panicked(), [PanickedTask { task: "fragile", panics: 1, seconds_ago: 0 }]);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(starts.load(Ordering::Relaxed), 3, "after 1 s and after 2 s more");
    assert_eq!(restarts(&registry, "fragile").as_deref(), Some("2"));
    assert_eq!(restarts(&registry, "steady").as_deref(), Some("0"));
    tokio::time::sleep(STEADY_AFTER).await;
    assert_eq!(supervisor.panicked(), [], "operators see panics of the last ten minutes");
}

#[tokio::test(start_paused = true)]
async fn a_panic_on_a_blocking_thread_restarts_the_task_that_waits_for_it() {
    let ((supervisor, registry), end) = (supervisor(), Shutdown::new());
    let task = supervisor.spawn("disk", &end, Arc::new(AtomicU64::new(0)), |starts, _| async move {
        blocking(move || assert_ne!(starts.fetch_add(1, Ordering::Relaxed), 0, "the first start")).await;
    });
    tokio::time::timeout(Duration::from_secs(20), task).await.unwrap().unwrap();
    assert_eq!(restarts(&registry, "disk").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn pauses_double_up_to_a_minute_and_reset_after_ten_minutes_without_a_panic() {
    let ((supervisor, _), end) = (supervisor(), Shutdown::new());
    let starts: Arc<Mutex<Vec<Instant>>> = Arc::default();
    supervisor.spawn("fragile", &end, starts.clone(), |starts, _| async move {
        starts.lock().push(Instant::now());
        let lives = if starts.lock().len() == 9 { STEADY_AFTER } else { Duration::ZERO };
        tokio::time::sleep(lives).await;
        panic!("again");
    });
    tokio::time::sleep(Duration::from_mins(20)).await;
    let starts = starts.lock();
    let gaps: Vec<f64> = starts.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).take(10).collect();
    for (gap, longest) in gaps.iter().zip([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 601.0, 2.0]) {
        let shortest = if longest > 600.0 { 600.0 } else { longest * 0.75 };
        assert!((shortest..=longest + 0.01).contains(gap), "{gap} s instead of {longest} s at most: {gaps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn at_the_end_a_pausing_task_finishes_its_work_and_a_panic_is_reported() {
    let ((supervisor, _), end) = (supervisor(), Shutdown::new());
    let spawn = |heals: bool| {
        supervisor.spawn("fragile", &end, heals, |heals, end| async move {
            assert!(heals && end.has_begun(), "not yet");
        })
    };
    let (heals, broken) = (spawn(true), spawn(false));
    tokio::task::yield_now().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    end.begin();
    assert!(heals.await.is_ok(), "it was started again and has finished");
    assert!(broken.await.unwrap_err().is_panic());
    assert_eq!(began.elapsed(), Duration::ZERO, "the end does not wait for a pause");
}

#[tokio::test(start_paused = true)]
async fn to_abort_the_handle_aborts_the_task() {
    let ((supervisor, _), alive) = (supervisor(), Arc::new(()));
    let handle = supervisor.spawn("long", &Shutdown::new(), alive.clone(), |held, _| async move {
        std::future::pending::<()>().await;
        drop(held);
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    handle.abort();
    assert!(handle.await.unwrap_err().is_cancelled());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(Arc::strong_count(&alive), 1);
}
