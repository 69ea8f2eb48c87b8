//! The shutdown of a process, announced to all tasks.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// A handle to the shutdown. Every task that must stop holds a clone.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    token: CancellationToken,
}

impl Shutdown {
    /// A shutdown that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// Announces the shutdown. Further calls do nothing.
    pub fn begin(&self) {
        self.token.cancel();
    }

    /// Whether the shutdown was announced.
    pub fn has_begun(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits for the announcement.
    pub async fn begun(&self) {
        self.token.cancelled().await;
    }

    /// Waits for `time`, or until the announcement.
    pub async fn pause(&self, time: Duration) {
        let _ = tokio::time::timeout(time, self.begun()).await;
    }

    /// The token itself, for code that composes cancellations.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Announces the shutdown when the process receives SIGTERM or SIGINT (Ctrl-C). A second signal ends the process at
    /// once with status 130.
    ///
    /// # Errors
    /// If the operating system refuses the handlers.
    pub fn on_signals(&self) -> anyhow::Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let shutdown = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                if shutdown.has_begun() {
                    std::process::exit(130);
                }
                shutdown.begin();
            }
        });
        Ok(())
    }
}
