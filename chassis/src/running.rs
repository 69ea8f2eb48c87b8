//! A started service: its addresses, and how to wait for its end.
//!
//! Each service offers `start(config, clock, shutdown) -> Running`, used by its own binary and by `tollhouse up`, which
//! runs all of them in one process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinHandle;

/// How often [`Running::ends`] looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A service that is up.
#[derive(Debug)]
pub struct Running {
    name: &'static str,
    addresses: BTreeMap<&'static str, SocketAddr>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    /// A running service with its bound addresses by listener name (`http`, `internal`, `admin`).
    pub fn new(
        name: &'static str,
        addresses: impl IntoIterator<Item = (&'static str, SocketAddr)>,
        task: JoinHandle<anyhow::Result<()>>,
    ) -> Self {
        Self { name, addresses: addresses.into_iter().collect(), task }
    }

    /// The bound address of a listener.
    ///
    /// # Errors
    /// When the service has no listener of this name.
    pub fn address(&self, listener: &str) -> anyhow::Result<SocketAddr> {
        self.addresses.get(listener).copied().with_context(|| format!("{} has no listener {listener}", self.name))
    }

    /// All listeners.
    pub fn addresses(&self) -> &BTreeMap<&'static str, SocketAddr> {
        &self.addresses
    }

    /// Waits until the service has stopped or panicked; [`Self::stopped`] says why.
    pub async fn ends(&self) {
        while !self.task.is_finished() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until the service has stopped.
    ///
    /// # Errors
    /// The service's error, or its panic.
    pub async fn stopped(self) -> anyhow::Result<()> {
        self.task.await.with_context(|| format!("{} panicked", self.name))?.with_context(|| self.name.to_owned())
    }
}
