//! The overview for operators.

use contract::ban::Ban;
use contract::feed::Revision;
use contract::project::ProjectId;
use serde::{Deserialize, Serialize};

use super::{Project, Rfc3339, Withdrawal};

/// Bans, certificates that end soon, and domains that wait for their owners.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Overview {
    /// Served domains whose certificates end soonest.
    pub certificates_ending: Vec<EndingCertificate>,
    /// Domains that wait for their owners, the longest first.
    pub domains_stuck: Vec<StuckDomain>,
    /// The bans that end last.
    pub bans: Vec<ListedBan>,
    /// How many bans there are.
    pub bans_total: u64,
}

/// The certificate of a served domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EndingCertificate {
    /// The domain.
    pub name: String,
    /// Its project.
    pub project: String,
    /// The authority.
    pub ca: Option<String>,
    /// Until when the certificate is valid.
    pub not_after: Rfc3339,
}

/// A domain that waits for its owner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StuckDomain {
    /// The domain.
    pub name: String,
    /// Its project.
    pub project: String,
    /// Its status.
    pub status: String,
    /// Its first problem, in words.
    pub problem: Option<String>,
    /// Since when it has this status.
    pub since: Rfc3339,
}

/// A ban and its key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListedBan {
    /// The ban.
    pub ban: Ban,
    /// The key's project; `None` if the key was deleted already.
    pub project: Option<ProjectId>,
    /// What its owner calls the key.
    pub label: Option<String>,
}

/// A page of projects, by name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Projects {
    /// The projects.
    pub projects: Vec<Project>,
    /// `cursor` of the next page; nothing on the last.
    pub next_cursor: Option<String>,
}

/// The processes of gateways.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GatewayProcesses {
    /// The newest revision.
    pub revision: Revision,
    /// The processes that removals wait for.
    pub nodes: Vec<GatewayProcess>,
}

/// A process of a gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GatewayProcess {
    /// The gateway, if the process names one.
    pub gateway: Option<String>,
    /// The process, with its gateway.
    pub node: String,
    /// The data directory with its gateway, if the process reports one.
    pub place: Option<String>,
    /// The newest revision that it has applied.
    pub applied: Revision,
    /// Its version.
    pub version: String,
    /// Whether it reported lately.
    pub live: bool,
    /// Milliseconds since its last report.
    pub silent_ms: i64,
    /// When it reported first.
    pub first_seen_at: Rfc3339,
    /// When it reported last.
    pub last_seen_at: Rfc3339,
}

/// Withdrawals that some gateways have not confirmed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Withdrawals {
    /// The oldest.
    pub withdrawals: Vec<ListedWithdrawal>,
    /// How many there are.
    pub total: i64,
}

/// A withdrawal in the list of all projects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListedWithdrawal {
    /// What, since when, and the gateways that have not confirmed it.
    #[serde(flatten)]
    pub withdrawal: Withdrawal,
    /// The name, key or project.
    pub which: String,
    /// The project's name.
    pub project: String,
    /// The project.
    pub project_uid: String,
    /// The revision with the withdrawal.
    pub revision: Revision,
}
