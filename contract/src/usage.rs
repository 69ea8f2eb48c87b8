//! What gateways report of the requests they counted: for people to look at. Quotas do not lean on it.

use serde::{Deserialize, Serialize};

use crate::project::ProjectId;

/// Projects in one report: more come in the next one.
pub const USAGE_PROJECTS_MAX: usize = 50;

/// What one gateway process counted for one project on one UTC day: `POST /internal/edge/usage`. The figures are those
/// of the whole day so far, so a report that is lost or comes twice changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageOfProject {
    /// The project whose quota was charged.
    pub project: ProjectId,
    /// Days since the epoch.
    pub day: i64,
    /// Requests that spent a unit.
    pub admitted: u64,
    /// Requests refused because the minute's or the day's limit was reached.
    pub refused: u64,
    /// Requests refused because their key is banned for a while.
    pub banned: u64,
    /// The last minute with an admitted request, in minutes since the epoch.
    pub minute: i64,
    /// Requests admitted in that minute.
    pub in_minute: u64,
}

/// A gateway's report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageReport {
    /// The node's name, unique per process start.
    pub node: String,
    /// At most [`USAGE_PROJECTS_MAX`] of them.
    pub projects: Vec<UsageOfProject>,
}
