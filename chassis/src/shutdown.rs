//! The end of a process: announced once, heard everywhere.

use tokio_util::sync::CancellationToken;

/// A handle everybody who must stop holds a clone of.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    token: CancellationToken,
}

impl Shutdown {
    /// Nothing has been announced yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Announces the end. Further calls change nothing.
    pub fn begin(&self) {
        self.token.cancel();
    }

    /// Whether the end has been announced.
    pub fn has_begun(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits for the announcement.
    pub async fn begun(&self) {
        self.token.cancelled().await;
    }

    /// The token itself, for code that composes cancellations.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Announces the end when the process receives SIGTERM or SIGINT (Ctrl-C). A second signal ends the process at
    /// once with status 130: whoever presses Ctrl-C twice means it.
    ///
    /// # Errors
    /// When the operating system refuses the handlers.
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
