//! A promise that a draw saw broken, and waiting for a condition.

use std::fmt;
use std::time::{Duration, Instant};

/// The longest wait for a condition; the draw then fails and names it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// What was promised, and what happened instead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// Without names and numbers: a smaller schedule must break the same one.
    pub(crate) promise: &'static str,
    pub(crate) details: String,
}

impl Broken {
    /// The same with more details.
    pub(crate) fn with(self, more: impl fmt::Display) -> Self {
        Self { details: format!("{}: {more}", self.details), ..self }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken: {}: {}", self.promise, self.details)
    }
}

pub(crate) fn broken<T>(promise: &'static str, details: impl Into<String>) -> Result<T, Broken> {
    Err(Broken { promise, details: details.into() })
}

/// Waits for a condition, polling.
pub(crate) async fn eventually<T>(promise: &'static str, holds: impl AsyncFnMut() -> Option<T>) -> Result<T, Broken> {
    within(PATIENCE, promise, holds).await
}

/// The same with another longest wait.
pub(crate) async fn within<T>(
    patience: Duration,
    promise: &'static str,
    mut holds: impl AsyncFnMut() -> Option<T>,
) -> Result<T, Broken> {
    let began = Instant::now();
    let mut pause = tokio::time::interval(Duration::from_millis(20));
    loop {
        if let Some(value) = holds().await {
            return Ok(value);
        }
        if began.elapsed() > patience {
            return broken(promise, format!("not within {} s", patience.as_secs()));
        }
        pause.tick().await;
    }
}
