//! Whether the control plane knows that this gateway serves.
//!
//! What it withdraws waits for every process on record. One that says goodbye is not waited for, so what the replica holds
//! then may be withdrawn before the next start. A replica that was copied has a process that is waited for, and that is not
//! this one. The file says so, from before the goodbye or from the first start over the copy until the control plane has heard
//! the next process and has sent it everything. Until then nothing is served from the replica, unless the settings say
//! otherwise. A process that crashed, or found no control plane to say goodbye to, is waited for: the next one over its
//! replica serves at once.

use std::sync::atomic::{AtomicBool, Ordering};

use contract::feed::Revision;

use super::{Replica, ReplicaError};

contract::words! {
    /// A replica that was left with a goodbye, or came to a new place.
    pub enum Unheard {
        /// Nothing of it is served.
        Held = "held",
        /// It is served all the same, as the settings say.
        Served = "served",
    }
}

pub(super) struct Standing {
    /// The file says that it was left with a goodbye, or came to a new place.
    stopped: AtomicBool,
    /// Nothing is served.
    held: AtomicBool,
}

impl Standing {
    pub(super) fn of_file(stopped: bool) -> Self {
        Self { stopped: AtomicBool::new(stopped), held: AtomicBool::new(stopped) }
    }

    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }
}

impl Replica {
    /// Whether the replica was left with a goodbye, or came to a new place, and the control plane has not heard of this process
    /// yet.
    pub(crate) fn unheard(&self) -> Option<Unheard> {
        let stopped = self.standing.stopped.load(Ordering::Acquire);
        stopped.then(|| if self.standing.is_held() { Unheard::Held } else { Unheard::Served })
    }

    /// The data directory is a place that the control plane does not know, as a copy of another one is.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn came_to_new_place(&self) -> Result<(), ReplicaError> {
        if self.revision() > Revision::default() {
            self.stop()?;
            self.standing.held.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// A process begins over the replica; `serve_before_heard` is an operator's setting.
    pub(crate) fn begin(&self, serve_before_heard: bool) {
        let revision = self.revision().0;
        match self.unheard() {
            Some(_) if serve_before_heard => {
                self.standing.held.store(false, Ordering::Release);
                tracing::warn!(
                    revision,
                    "this gateway was stopped in order, or its data directory was copied, and it serves before the control \
                     plane has heard it, as feed.serve_before_heard says: keys, names and projects that were withdrawn since \
                     are served, and nothing waits for this gateway. Take the setting away when the control plane is back"
                );
            }
            Some(_) => tracing::info!(
                revision,
                "this gateway was stopped in order, or its data directory was copied: it serves nothing until the control \
                 plane has heard it"
            ),
            None => {}
        }
    }

    /// The control plane has heard of this process, and everything it had sent is applied: the replica is served.
    pub(crate) fn heard(&self) {
        if self.standing.stopped.load(Ordering::Acquire) {
            match self.file.note_stopped(false) {
                Ok(()) => self.standing.stopped.store(false, Ordering::Release),
                // Should this process crash, the next one waits to be heard without need.
                Err(error) => tracing::warn!(
                    error = format!("{error:#}"),
                    "the replica's file still says that the control plane has not heard this gateway; trying again"
                ),
            }
        }
        self.standing.held.store(false, Ordering::Release);
    }

    /// Notes that the control plane waits for no process over this replica: this one says goodbye next, and its requests have
    /// ended.
    ///
    /// # Errors
    /// When the file cannot be written: then no goodbye may be said.
    pub(crate) fn stop(&self) -> Result<(), ReplicaError> {
        self.file.note_stopped(true).map_err(ReplicaError::File)?;
        self.standing.stopped.store(true, Ordering::Release);
        Ok(())
    }
}
