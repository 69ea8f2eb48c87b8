//! Erases the data of projects that the control plane has deleted permanently.
//!
//! This service requests the list of projects to erase and reports each one that it erased. The control plane lists a
//! project until it gets that report, so an outage of either side can delay an erasure but not lose it.

use std::sync::Arc;
use std::time::Duration;

use chassis::clock::Clock;
use contract::erasure::{ERASURES_PATH, Erasures};
use reqwest::{Method, StatusCode};

use crate::control_plane::{ControlPlane, Failure, PeriodicTask};
use crate::orders::Orders;

/// Interval between two requests.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The task that erases.
pub(crate) struct Eraser {
    pub(crate) orders: Orders,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) control_plane: ControlPlane,
}

impl PeriodicTask for Eraser {
    const FAILED: &'static str = "cannot erase removed projects; retrying";
    const RECOVERED: &'static str = "erasing removed projects again";

    async fn round(&self) -> Result<Duration, Failure> {
        let answer = self.control_plane.request(Method::GET, ERASURES_PATH).send().await?;
        if answer.status() != StatusCode::OK {
            return Err(Failure::Refused(answer.status()));
        }
        let wanted: Erasures = answer.json().await?;
        if wanted.projects.is_empty() {
            return Ok(POLL_INTERVAL);
        }
        for project in &wanted.projects {
            self.orders.store().erase(project, self.clock.now()).await?;
            tracing::info!(project.uid = %project, "erased all data of a removed project");
        }
        let status = self.control_plane.request(Method::POST, ERASURES_PATH).json(&wanted).send().await?.status();
        if status == StatusCode::NO_CONTENT { Ok(POLL_INTERVAL) } else { Err(Failure::Refused(status)) }
    }
}
