//! Waiting for a reason to read a file again: SIGHUP, or that what it holds has changed.
//!
//! The file is looked at every second, by its contents: editors and deployments replace files in many ways, and a file
//! that was only touched is no change. A file that is gone for a moment is looked at again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::source::SETTINGS_BYTES_MAX;
use crate::secret::read_regular;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A file that is watched.
pub struct FileWatch {
    path: PathBuf,
    seen: Option<Vec<u8>>,
    hangup: Signal,
}

impl FileWatch {
    /// Watches a file from now on. From now on SIGHUP does not end the process.
    ///
    /// # Errors
    /// When the operating system refuses the signal.
    pub fn new(path: &Path) -> std::io::Result<Self> {
        let hangup = signal(SignalKind::hangup())?;
        Ok(Self { path: path.to_owned(), seen: read(path), hangup })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the file should be read again.
    pub async fn changed(&mut self) {
        loop {
            let asked = tokio::time::timeout(LOOK_EVERY, self.hangup.recv()).await.is_ok();
            let path = self.path.clone();
            let now = tokio::task::spawn_blocking(move || read(&path)).await.ok().flatten();
            let differs = now.is_some() && now != self.seen;
            if differs {
                self.seen = now;
            }
            if asked || differs {
                return;
            }
        }
    }
}

/// What the file holds, if that can be settings.
fn read(path: &Path) -> Option<Vec<u8>> {
    read_regular(path, SETTINGS_BYTES_MAX).ok().map(|(bytes, _)| bytes.to_vec())
}

/// For services that take nothing but `log.filter` while they run: reads the file again on SIGHUP and when it changes. A
/// file with a mistake changes nothing, and its mistakes are logged. What else differs is taken at the next start.
pub async fn keep_log_filter(
    mut file: FileWatch,
    read: impl Fn(&Path) -> anyhow::Result<String>,
    logs: std::sync::Arc<crate::logs::Logs>,
) {
    loop {
        file.changed().await;
        match read(file.path()).and_then(|filter| logs.filter(&filter)) {
            Ok(()) => tracing::info!("settings read again; what is logged is taken, the rest at the next start"),
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "the settings are refused; those in force stay");
            }
        }
    }
}
