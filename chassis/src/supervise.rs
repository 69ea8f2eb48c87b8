//! Restarts background tasks that panic.
//!
//! A panic ends the task in which it happens, and nothing else. A task that has to run as long as its process is
//! therefore started by a [`Supervisor`], alone: tasks that share a future end together. A task that returns has
//! finished and is not started again.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{IntCounterVec, Registry};
use serde::Serialize;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::metrics::counter_vec;
use crate::random::jitter;
use crate::shutdown::Shutdown;

/// The pause before the first restart; each further panic doubles it, up to the longest.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// A task that ran for this long works again: the next pause is the shortest, and operators need not know any more.
const STEADY_AFTER: Duration = Duration::from_mins(10);

/// The supervisor of a process's background tasks. Clones share everything.
#[derive(Clone)]
pub struct Supervisor {
    restarts: IntCounterVec,
    panics: Arc<Mutex<BTreeMap<&'static str, (u64, Instant)>>>,
}

/// A background task that panicked in the last ten minutes, for operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PanickedTask {
    /// Its name.
    pub task: &'static str,
    /// Its panics since the start of the process.
    pub panics: u64,
    /// Seconds since the last one.
    pub seconds_ago: u64,
}

impl Supervisor {
    /// Registers the counter of restarts, `{process}_task_restarts_total{task}`, under its full `name`.
    ///
    /// # Errors
    /// If the name is taken: a programming mistake, found at start.
    pub fn register(registry: &Registry, name: &str) -> anyhow::Result<Self> {
        let help = "Restarts of background tasks after a panic.";
        Ok(Self { restarts: counter_vec(registry, name, help, &["task"])?, panics: Arc::default() })
    }

    /// Starts `task` with a clone of `state`, and again 1 to 60 seconds after each panic. Once `end` has begun, a
    /// pausing task starts at once, to finish its work, and a panic is the result of the handle. Aborting the handle
    /// aborts the task.
    pub fn spawn<S, F>(
        &self,
        name: &'static str,
        end: &Shutdown,
        state: S,
        mut task: impl FnMut(S, Shutdown) -> F + Send + 'static,
    ) -> JoinHandle<()>
    where
        S: Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (supervisor, end) = (self.clone(), end.clone());
        // The series exists before the first restart.
        let restarts = self.restarts.with_label_values(&[name]);
        tokio::spawn(async move {
            let mut pause = PAUSE_MIN;
            loop {
                let (started, is_last) = (Instant::now(), end.has_begun());
                let running = AbortOnDropHandle::new(tokio::spawn(task(state.clone(), end.clone())));
                let Err(ended) = running.await else { return };
                // Cancelled: the runtime shuts down.
                let Ok(panic) = ended.try_into_panic() else { return };
                if is_last {
                    std::panic::resume_unwind(panic);
                }
                if started.elapsed() >= STEADY_AFTER {
                    pause = PAUSE_MIN;
                }
                let wait = jittered(pause);
                supervisor.record(name, &message(&*panic), wait);
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = end.begun() => {}
                }
                restarts.inc();
                pause = (pause * 2).min(PAUSE_MAX);
            }
        })
    }

    fn record(&self, task: &'static str, panic: &str, wait: Duration) {
        let panics = {
            let mut panics = self.panics.lock();
            let entry = panics.entry(task).or_insert((0, Instant::now()));
            *entry = (entry.0 + 1, Instant::now());
            entry.0
        };
        tracing::error!(
            task,
            panic,
            panics,
            restart_in_ms = wait.as_millis(),
            "a background task panicked; restarting it, other tasks continue. This is a defect: report it with the \
             panic message from standard error"
        );
    }

    /// The tasks that panicked in the last ten minutes.
    pub fn panicked(&self) -> Vec<PanickedTask> {
        let panics = self.panics.lock();
        let recent = panics.iter().filter(|(_, (_, at))| at.elapsed() < STEADY_AFTER);
        recent
            .map(|(task, (panics, at))| PanickedTask { task, panics: *panics, seconds_ago: at.elapsed().as_secs() })
            .collect()
    }
}

/// Runs `work` on a thread that it may block. Its panic becomes one of the calling task, so that the supervisor counts
/// it.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await.map_err(JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // Cancelled: the runtime shuts down, and the calling task with it.
        Err(Err(_)) => std::future::pending().await,
    }
}

/// A pause, up to a quarter shorter: the processes of a fleet that panicked together restart one after the other.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(1.0 - jitter() / 4.0)
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests;
