//! The listeners of a service. One that ends by itself, after a panic, ends the process through the same drain as a
//! signal; the process is then started again.

use anyhow::Context as _;
use tokio::task::{JoinError, JoinSet};

use crate::health::Health;
use crate::shutdown::Shutdown;

/// The running listeners of a service.
pub struct ServiceListeners {
    serving: JoinSet<anyhow::Result<()>>,
    admin: JoinSet<anyhow::Result<()>>,
    admin_end: Shutdown,
}

impl ServiceListeners {
    /// Starts the listeners: `serving` end with the shutdown of the process, `admin` ends with `admin_end`.
    pub fn start<S, A>(serving: impl IntoIterator<Item = S>, admin: A, admin_end: Shutdown) -> Self
    where
        S: Future<Output = anyhow::Result<()>> + Send + 'static,
        A: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let mut admins = JoinSet::new();
        admins.spawn(admin);
        Self { serving: serving.into_iter().collect(), admin: admins, admin_end }
    }

    /// Waits until `shutdown` begins, or begins it when a listener ends by itself. Returns once all requests are
    /// finished; the admin listener still answers, so that the drain can be watched.
    ///
    /// # Errors
    /// If a listener ended by itself, or requests were still in progress at the end of the drain.
    pub async fn drained(&mut self, shutdown: &Shutdown, health: &Health) -> anyhow::Result<()> {
        let mut result = tokio::select! {
            () = shutdown.begun() => Ok(()),
            Some(ended) = self.serving.join_next() => of_listener(ended),
            Some(ended) = self.admin.join_next() => of_listener(ended),
        };
        if let Err(error) = &result {
            tracing::error!(
                error = format!("{error:#}"),
                "draining and ending the process, so that it is started again"
            );
        }
        shutdown.begin();
        health.drain();
        while let Some(ended) = self.serving.join_next().await {
            result = result.and(of_listener(ended));
        }
        result
    }

    /// Ends the admin listener.
    ///
    /// # Errors
    /// As [`Self::drained`].
    pub async fn end(mut self) -> anyhow::Result<()> {
        self.admin_end.begin();
        self.admin.join_next().await.map_or(Ok(()), of_listener)
    }
}

fn of_listener(ended: Result<anyhow::Result<()>, JoinError>) -> anyhow::Result<()> {
    ended.context("a listener ended unexpectedly").and_then(|ended| ended)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_listener_that_panics_ends_the_process_after_the_requests_of_the_others() {
        for admin_panics in [false, true] {
            let (shutdown, admin_end, health) = (Shutdown::new(), Shutdown::new(), Health::new());
            let finished = Arc::new(AtomicBool::new(false));
            let (begun, done) = (shutdown.clone(), finished.clone());
            let healthy = async move {
                begun.begun().await;
                done.store(true, Ordering::Relaxed);
                Ok(())
            };
            let until = if admin_panics { shutdown.clone() } else { Shutdown::new() };
            let other = async move {
                assert!(admin_panics, "a defect of the listener");
                until.begun().await;
                Ok(())
            };
            let admin_until = admin_end.clone();
            let admin = async move {
                assert!(!admin_panics, "a defect of the admin listener");
                admin_until.begun().await;
                Ok(())
            };
            let mut listeners = ServiceListeners::start([healthy.boxed(), other.boxed()], admin, admin_end);
            let drained = listeners.drained(&shutdown, &health).await;
            assert!(format!("{:#}", drained.unwrap_err()).contains("a listener ended unexpectedly"));
            assert!(shutdown.has_begun() && health.is_draining() && finished.load(Ordering::Relaxed));
            assert!(listeners.end().await.is_ok());
        }
    }
}
