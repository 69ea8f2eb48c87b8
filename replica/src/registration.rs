//! Whether the control plane knows that this gateway serves.
//!
//! Withdrawals wait for every registered process. A process that said goodbye is not waited for, so the contents of its
//! replica may be withdrawn before the next start. A copied replica belongs to another registered process. The file
//! records this, from before the goodbye or from the first start with the copy, until the control plane has registered
//! the next process and has sent it everything. Until then nothing is served from the replica, unless the settings
//! allow it. A process that crashed, or could not reach the control plane to say goodbye, is still waited for: the next
//! process with its replica serves at once.

use std::sync::atomic::{AtomicBool, Ordering};

use contract::feed::Revision;

use super::{Replica, ReplicaError};

contract::words! {
    /// The state of a replica that was left with a goodbye, or copied.
    pub enum Unregistered {
        /// Nothing is served from it.
        Held = "held",
        /// It is served, as the settings allow.
        Served = "served",
    }
}

pub(super) struct Registration {
    /// The file says that it was left with a goodbye, or copied.
    stopped: AtomicBool,
    /// Nothing is served.
    held: AtomicBool,
}

impl Registration {
    pub(super) fn of_file(stopped: bool) -> Self {
        Self { stopped: AtomicBool::new(stopped), held: AtomicBool::new(stopped) }
    }

    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }
}

impl Replica {
    /// Whether the replica was left with a goodbye, or copied, and the control plane does not know this process yet.
    pub fn unregistered(&self) -> Option<Unregistered> {
        let stopped = self.registration.stopped.load(Ordering::Acquire);
        stopped.then(|| if self.registration.is_held() { Unregistered::Held } else { Unregistered::Served })
    }

    /// The control plane does not know this data directory, for example because it is a copy.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn came_to_new_place(&self) -> Result<(), ReplicaError> {
        if self.revision() > Revision::default() {
            self.stop()?;
            self.registration.held.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// A process starts with the replica; `serve_before_registered` is an operator's setting.
    pub fn begin(&self, serve_before_registered: bool) {
        let revision = self.revision().0;
        match self.unregistered() {
            Some(_) if serve_before_registered => {
                self.registration.held.store(false, Ordering::Release);
                tracing::warn!(
                    revision,
                    "serving before the control plane is reached, because feed.serve_before_registered is set: after a \
                     graceful shutdown, or with a copied data directory, this gateway may serve keys, names and \
                     projects that were removed since. Remove the setting when the control plane is back"
                );
            }
            Some(_) => tracing::info!(
                revision,
                "this gateway serves nothing until it reaches the control plane: it was shut down gracefully, or its \
                 data directory was copied"
            ),
            None => {}
        }
    }

    /// The control plane has registered this process, and everything it has sent is applied: the replica is served.
    pub fn confirm_registration(&self) {
        if self.registration.stopped.load(Ordering::Acquire) {
            match self.file.set_stopped(false) {
                Ok(()) => self.registration.stopped.store(false, Ordering::Release),
                // If this process crashes, the next one waits unnecessarily.
                Err(error) => tracing::warn!(
                    error = format!("{error:#}"),
                    "cannot record in the replica's file that the control plane was reached; retrying"
                ),
            }
        }
        self.registration.held.store(false, Ordering::Release);
    }

    /// Records that the control plane waits for no process with this replica: this one says goodbye next, and its
    /// requests have ended.
    ///
    /// # Errors
    /// If the file cannot be written: then no goodbye may be sent.
    pub fn stop(&self) -> Result<(), ReplicaError> {
        self.file.set_stopped(true).map_err(ReplicaError::File)?;
        self.registration.stopped.store(true, Ordering::Release);
        Ok(())
    }
}
