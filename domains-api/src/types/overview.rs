//! The overview for operators.

use contract::ban::Ban;
use contract::project::ProjectId;
use serde::{Deserialize, Serialize};

use super::Rfc3339;

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
    /// The key's project; nothing when the key is forgotten already.
    pub project: Option<ProjectId>,
    /// What its owner calls the key.
    pub label: Option<String>,
}
