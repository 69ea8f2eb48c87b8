//! Whether a process is alive and may receive traffic.
//!
//! Liveness never checks dependencies. Readiness consists of named conditions of the process itself (configuration
//! loaded, replica present, listeners up) and the absence of draining. A failed Redis or database never changes it,
//! because one blip would then remove the whole fleet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// The health of one process. Clones share it.
#[derive(Clone, Default)]
pub struct Health {
    conditions: Arc<Mutex<BTreeMap<&'static str, Arc<AtomicBool>>>>,
    draining: Arc<AtomicBool>,
}

/// One named condition of readiness.
#[derive(Clone)]
pub struct Condition(Arc<AtomicBool>);

impl Condition {
    /// Sets whether the condition holds.
    pub fn set(&self, holds: bool) {
        self.0.store(holds, Ordering::Release);
    }

    /// Whether the condition holds.
    pub fn holds(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Health {
    /// No conditions: ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds (or finds) a condition; a new one does not hold yet.
    pub fn condition(&self, name: &'static str) -> Condition {
        Condition(self.conditions.lock().entry(name).or_default().clone())
    }

    /// Makes the process not ready: it finishes its requests.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Reverts [`Health::drain`].
    pub fn resume(&self) {
        self.draining.store(false, Ordering::Release);
    }

    /// Whether [`Health::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Whether the process may receive traffic.
    pub fn is_ready(&self) -> bool {
        !self.is_draining() && self.conditions.lock().values().all(|condition| condition.load(Ordering::Acquire))
    }

    /// Every condition and draining, for operators.
    pub fn report(&self) -> serde_json::Value {
        let conditions: BTreeMap<_, _> =
            self.conditions.lock().iter().map(|(name, holds)| (*name, holds.load(Ordering::Acquire))).collect();
        serde_json::json!({ "ready": self.is_ready(), "draining": self.is_draining(), "conditions": conditions })
    }
}
