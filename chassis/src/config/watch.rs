//! Waits for a reason to read a file again: SIGHUP, or changed contents.
//!
//! The contents are compared every second, because editors and deployments replace files in many ways, and a new
//! modification time alone is not a change. A file that is temporarily missing is checked again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::source::SETTINGS_BYTES_MAX;
use crate::secret::read_regular;

/// Interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Changed contents count as complete when they stay the same for this long: a file that is still being written may be
/// valid too.
const SETTLED_AFTER: Duration = Duration::from_millis(250);

/// A watched file.
pub struct FileWatch {
    path: PathBuf,
    seen: Option<Vec<u8>>,
    hangup: Signal,
}

impl FileWatch {
    /// Watches a file from now on. SIGHUP no longer ends the process.
    ///
    /// # Errors
    /// If the operating system refuses the signal handler.
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
            let is_hangup = tokio::time::timeout(CHECK_INTERVAL, self.hangup.recv()).await.is_ok();
            let mut now = self.read().await;
            while now.is_some() && now != self.seen {
                tokio::time::sleep(SETTLED_AFTER).await;
                let later = self.read().await;
                if later == now {
                    self.seen = now;
                    return;
                }
                now = later;
            }
            if is_hangup {
                return;
            }
        }
    }

    async fn read(&self) -> Option<Vec<u8>> {
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || read(&path)).await.ok().flatten()
    }
}

/// The contents of the file; `None` if it cannot be a settings file.
fn read(path: &Path) -> Option<Vec<u8>> {
    read_regular(path, SETTINGS_BYTES_MAX).ok().map(|(bytes, _)| bytes.to_vec())
}

/// For services that reload only `log.filter`: reads the file again on SIGHUP and after a change. A file with mistakes
/// changes nothing, and its mistakes are logged. Other changes take effect at the next start.
pub async fn keep_log_filter(
    mut file: FileWatch,
    read: impl Fn(&Path) -> anyhow::Result<String> + Clone + Send + 'static,
    logs: std::sync::Arc<crate::logs::Logs>,
) {
    loop {
        file.changed().await;
        let (path, read, logs) = (file.path().to_owned(), read.clone(), logs.clone());
        // On its own thread, so that a panic does not end the watch.
        let applied = tokio::task::spawn_blocking(move || logs.filter(&read(&path)?)).await;
        match applied.map_err(anyhow::Error::from).and_then(|applied| applied) {
            Ok(()) => tracing::info!("reloaded the settings: log.filter is applied, other changes at the next start"),
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "cannot reload the settings; keeping the current ones");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_file_is_read_when_its_writer_is_done() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("settings.toml");
        std::fs::write(&path, "whole").unwrap();
        let mut watch = FileWatch::new(&path).unwrap();
        std::fs::write(&path, "half of").unwrap();
        let writer = async {
            tokio::time::sleep(CHECK_INTERVAL + SETTLED_AFTER / 2).await;
            std::fs::write(&path, "half of another").unwrap();
        };
        tokio::join!(watch.changed(), writer);
        assert_eq!(watch.seen.as_deref(), Some("half of another".as_bytes()));
    }
}
