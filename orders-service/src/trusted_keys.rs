//! The keys that this service trusts: gateways sign the identity of a caller, the control plane signs operators'
//! passes.
//!
//! A task fetches the keys from the control plane every second, so a rotated key or a revoked gateway takes effect
//! within two seconds. Requests do not wait for it.
//!
//! The newest keys are also saved in a file. With it the service starts and serves while the control plane is
//! unreachable; during that time a revoked gateway is still accepted. The metric
//! `orders_trust_confirmed_timestamp_seconds` and the status report the age of the keys. A process that can write the
//! file could add its own key, so a file that users other than its owner can write is rejected.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context as _;
use chassis::clock::Clock;
use chassis::guard::TrustedKeys;
use chassis::metrics::IntGauge;
use chassis::secret::{read_regular, write_private};
use contract::trust::{TRUST_PATH, Trust};
use parking_lot::Mutex;
use reqwest::Method;

use crate::control_plane::{ControlPlane, Failure, PeriodicTask};

/// Interval between two requests for the keys.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Longest wait for the control plane's response.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Largest file in bytes: three keys for each of 256 gateways, and the operators' keys.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// The key sets in use.
#[derive(Clone)]
pub(crate) struct KeySets {
    /// Keys of gateways; `None` if a file (`identity.key_set_file`) provides them.
    pub(crate) gateways: Option<TrustedKeys>,
    /// Keys that sign operators' passes.
    pub(crate) operators: TrustedKeys,
}

/// The task that fetches the keys from the control plane and saves them.
pub(crate) struct KeyRefresh {
    key_sets: KeySets,
    control_plane: ControlPlane,
    clock: Arc<dyn Clock>,
    /// Time of the newest response, in seconds.
    confirmed: IntGauge,
    file: PathBuf,
    /// The contents of the file.
    saved: Mutex<Option<Trust>>,
    /// Whether the last write of the file failed.
    failing: AtomicBool,
}

impl KeyRefresh {
    /// Starts with the saved keys, if the file has any.
    pub(crate) fn with_saved_keys(
        key_sets: KeySets,
        control_plane: ControlPlane,
        file: PathBuf,
        (clock, confirmed): (Arc<dyn Clock>, IntGauge),
    ) -> Self {
        let saved = read(&file).unwrap_or_else(|error| {
            tracing::warn!(
                error = format!("{error:#}"),
                file = %file.display(),
                "ignored the file of trusted keys; requesting the keys from the control plane"
            );
            None
        });
        if let Some(saved) = &saved {
            key_sets.replace(saved);
            confirmed.set(written_at(&file));
        }
        Self {
            key_sets,
            control_plane,
            clock,
            confirmed,
            file,
            saved: Mutex::new(saved),
            failing: AtomicBool::new(false),
        }
    }

    /// Fetches the keys now if there are none, so that a platform whose processes start together serves at once. An
    /// unreachable control plane delays the start by at most two seconds.
    pub(crate) async fn begin(&self) {
        if self.key_sets.operators.all().keys().is_empty()
            && let Err(error) = self.round().await
        {
            tracing::warn!(%error, "no gateway keys yet; refusing all requests until the control plane responds");
        }
    }

    async fn save(&self, trust: Trust) {
        if self.saved.lock().as_ref() == Some(&trust) {
            return;
        }
        let (file, text) = (self.file.clone(), serde_json::to_vec(&trust).unwrap_or_default());
        let written = tokio::task::spawn_blocking(move || write_private(&file, &text)).await;
        match written.map_err(anyhow::Error::from).and_then(|written| written) {
            Ok(()) => {
                self.failing.store(false, Ordering::Relaxed);
                *self.saved.lock() = Some(trust);
            }
            Err(error) if !self.failing.swap(true, Ordering::Relaxed) => tracing::warn!(
                error = format!("{error:#}"),
                file = %self.file.display(),
                "cannot save the trusted keys; a start without the control plane would refuse all requests"
            ),
            Err(_) => {}
        }
    }
}

impl KeySets {
    fn replace(&self, trust: &Trust) {
        if let Some(gateways) = &self.gateways {
            gateways.replace(&trust.gateways);
        }
        self.operators.replace(&trust.operators);
    }
}

/// The saved keys; `None` if there is no file.
fn read(file: &Path) -> anyhow::Result<Option<Trust>> {
    let path = || format!("the file {}", file.display());
    if file.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let (text, facts) = read_regular(file, FILE_BYTES_MAX).with_context(path)?;
    anyhow::ensure!(
        facts.permissions().mode() & 0o022 == 0,
        "users other than its owner can write {}; run chmod go-w on it",
        file.display()
    );
    let trust: Trust = serde_json::from_slice(&text).with_context(path)?;
    anyhow::ensure!(!trust.gateways.keys().is_empty(), "{} contains no gateway key", file.display());
    Ok(Some(trust))
}

/// The time of the last write in seconds: the earliest time at which the control plane can have confirmed the keys.
fn written_at(file: &Path) -> i64 {
    let written = std::fs::metadata(file).and_then(|facts| facts.modified()).ok();
    let since = written.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl PeriodicTask for KeyRefresh {
    const FAILED: &'static str = "cannot fetch the trusted keys from the control plane: still accepting the previous keys, \
        also those of gateways revoked since; see orders_trust_confirmed_timestamp_seconds";
    const RECOVERED: &'static str = "fetching the trusted keys from the control plane again";
    // When the control plane returns, a gateway revoked in the meantime must be refused at once.
    const RETRY_MAX: Duration = REFRESH_INTERVAL;

    async fn round(&self) -> Result<Duration, Failure> {
        let answer = self.control_plane.request(Method::GET, TRUST_PATH).timeout(ANSWER_TIME_MAX).send().await?;
        let trust: Trust = answer.error_for_status()?.json().await?;
        self.key_sets.replace(&trust);
        self.confirmed.set(self.clock.now_seconds().0);
        self.save(trust).await;
        Ok(REFRESH_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use contract::token::SigningKey;

    use super::*;

    #[test]
    fn pipes_devices_and_directories_are_rejected_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("trust.json");
        assert!(std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&file).status().unwrap().success());
        assert!(read(&file).is_err(), "a pipe");
        for target in ["/dev/zero", "/dev/null", "nothing/here", "."] {
            std::fs::remove_file(&file).unwrap();
            std::os::unix::fs::symlink(target, &file).unwrap();
            assert!(read(&file).is_err(), "{target}");
        }
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        assert!(read(&file).is_err(), "a directory");
    }

    #[test]
    fn a_file_that_others_can_write_is_too_long_or_has_no_keys_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("trust.json");
        assert_eq!(read(&file).unwrap(), None);
        let key = SigningKey::from_seed(&[1; 32]).unwrap().public().clone();
        let trust = Trust { gateways: [key].into_iter().collect(), ..Trust::default() };
        write_private(&file, &serde_json::to_vec(&trust).unwrap()).unwrap();
        assert_eq!(read(&file).unwrap(), Some(trust));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("users other than its owner can write"));
        for text in ["", "[]", "{\"gateways\":{\"keys\":[]},\"operators\":{\"keys\":[]}}", &" ".repeat(300_000)] {
            write_private(&file, text.as_bytes()).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
            assert!(read(&file).is_err(), "{text}");
        }
    }
}
