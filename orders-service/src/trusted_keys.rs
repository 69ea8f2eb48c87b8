//! Whose word is believed about callers and operators: what the control plane says, asked for again and again, so that a
//! change of keys, or a gateway that is revoked, is known within a second or two. Requests wait for none of this.
//!
//! What it said last is saved in a file, so that this service starts and serves while the control plane is away, for as long as
//! that takes: a gateway that is revoked meanwhile goes on being believed here. How old that word is, a metric and the status
//! say. Whoever may write that file may say who calls: one that others than its owner may write is not read.

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

/// Between two questions.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// How long the control plane may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Bytes of the file: three keys of each gateway, of 256 gateways at most, and those of operators.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// Who believes.
#[derive(Clone)]
pub(crate) struct KeySets {
    /// About callers; `None` where a file of the operator's says which.
    pub(crate) gateways: Option<TrustedKeys>,
    /// About operators.
    pub(crate) operators: TrustedKeys,
}

/// Asks the control plane, and keeps what it says.
pub(crate) struct KeyRefresh {
    key_sets: KeySets,
    control_plane: ControlPlane,
    clock: Arc<dyn Clock>,
    /// When the control plane said so last; seconds.
    confirmed: IntGauge,
    file: PathBuf,
    /// What is in the file.
    saved: Mutex<Option<Trust>>,
    /// Whether the file could not be written last.
    failing: AtomicBool,
}

impl KeyRefresh {
    /// Believes what was saved, if anything was.
    pub(crate) fn with_saved_keys(
        key_sets: KeySets,
        control_plane: ControlPlane,
        file: PathBuf,
        (clock, confirmed): (Arc<dyn Clock>, IntGauge),
    ) -> Self {
        let saved = read(&file).unwrap_or_else(|error| {
            tracing::warn!(error = format!("{error:#}"), "the keys that were saved are not used; they are asked for");
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

    /// Asks now if nobody is believed yet: who starts everything at once finds this service knowing whom to believe. A
    /// control plane that is away costs a moment.
    pub(crate) async fn begin(&self) {
        if self.key_sets.operators.all().keys().is_empty()
            && let Err(error) = self.round().await
        {
            tracing::warn!(%error, "nobody is believed until the control plane says who");
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
                "the keys are believed but cannot be saved; a start without the control plane would not know them"
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

/// What was saved; `None` when nothing was.
fn read(file: &Path) -> anyhow::Result<Option<Trust>> {
    let place = || format!("the file {}", file.display());
    if file.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let (text, facts) = read_regular(file, FILE_BYTES_MAX).with_context(place)?;
    anyhow::ensure!(facts.permissions().mode() & 0o022 == 0, "others may write {}", file.display());
    let trust: Trust = serde_json::from_slice(&text).with_context(place)?;
    anyhow::ensure!(!trust.gateways.keys().is_empty(), "there is no key in {}", file.display());
    Ok(Some(trust))
}

/// When the file was written, in seconds: what is in it was said then, and perhaps later again.
fn written_at(file: &Path) -> i64 {
    let written = std::fs::metadata(file).and_then(|facts| facts.modified()).ok();
    let since = written.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl PeriodicTask for KeyRefresh {
    const FAILED: &'static str = "the control plane does not say whose identities are good: still accepting the keys from before, also \
        of gateways that are revoked meanwhile; see orders_trust_confirmed_timestamp_seconds";
    const RECOVERED: &'static str = "the control plane says again whose identities are good";
    // A gateway that was revoked while the control plane was away is known at once when it is back.
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
    fn what_is_no_file_is_not_waited_for_and_not_used() {
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
    fn what_others_may_write_what_is_too_long_and_what_says_nothing_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("trust.json");
        assert_eq!(read(&file).unwrap(), None);
        let key = SigningKey::from_seed(&[1; 32]).unwrap().public().clone();
        let trust = Trust { gateways: [key].into_iter().collect(), ..Trust::default() };
        write_private(&file, &serde_json::to_vec(&trust).unwrap()).unwrap();
        assert_eq!(read(&file).unwrap(), Some(trust));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("others may write"));
        for text in ["", "[]", "{\"gateways\":{\"keys\":[]},\"operators\":{\"keys\":[]}}", &" ".repeat(300_000)] {
            write_private(&file, text.as_bytes()).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
            assert!(read(&file).is_err(), "{text}");
        }
    }
}
