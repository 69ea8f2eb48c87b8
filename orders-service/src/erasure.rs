//! Erases what is kept of projects that are gone for good, as the control plane says.
//!
//! This service asks, and says when it is done; until then the control plane tells it again. So nothing is forgotten
//! while either side is down: it is late.

use std::sync::Arc;
use std::time::Duration;

use chassis::clock::Clock;
use contract::erasure::{ERASURES_PATH, Erasures};
use reqwest::{Method, StatusCode};

use crate::control_plane::{ControlPlane, Failure, PeriodicTask};
use crate::orders::Orders;

/// Between two questions.
const ASK_INTERVAL: Duration = Duration::from_secs(1);

/// Who erases.
pub(crate) struct Eraser {
    pub(crate) orders: Orders,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) control_plane: ControlPlane,
}

impl PeriodicTask for Eraser {
    const FAILED: &'static str = "removed projects cannot be erased now; trying again";
    const RECOVERED: &'static str = "removed projects are erased again";

    async fn round(&self) -> Result<Duration, Failure> {
        let answer = self.control_plane.request(Method::GET, ERASURES_PATH).send().await?;
        if answer.status() != StatusCode::OK {
            return Err(Failure::Refused(answer.status()));
        }
        let wanted: Erasures = answer.json().await?;
        if wanted.projects.is_empty() {
            return Ok(ASK_INTERVAL);
        }
        for project in &wanted.projects {
            self.orders.store().erase(project, self.clock.now()).await?;
            tracing::info!(project.uid = %project, "everything of a removed project was erased");
        }
        let status = self.control_plane.request(Method::POST, ERASURES_PATH).json(&wanted).send().await?.status();
        if status == StatusCode::NO_CONTENT { Ok(ASK_INTERVAL) } else { Err(Failure::Refused(status)) }
    }
}
