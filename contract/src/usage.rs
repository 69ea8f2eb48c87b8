//! Reports of gateways about counted requests and used keys, for display. Quotas do not depend on them. Each report
//! fits into [`REPORT_BYTES_MAX`], which the control plane accepts.

use serde::{Deserialize, Serialize};

use crate::ban::Ban;
use crate::key::KeyId;
use crate::project::ProjectUid;

/// The largest report that the control plane accepts, in bytes.
pub const REPORT_BYTES_MAX: usize = 16 * 1024;

/// Projects in one report; the rest follows in the next one.
pub const USAGE_PROJECTS_MAX: usize = 50;

/// The requests that one gateway process counted for one project on one UTC day: `POST /internal/edge/usage`. The
/// figures cover the whole day so far, so a lost or repeated report does no harm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageOfProject {
    /// The identity of the charged project.
    pub project: ProjectUid,
    /// Days since the epoch.
    pub day: i64,
    /// Requests that spent a unit.
    pub admitted: u64,
    /// Requests refused because the minute's or the day's limit was reached.
    pub refused: u64,
    /// Requests refused because their key is banned.
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

/// Uses of keys in one report; the rest follows in the next one.
pub const KEY_USES_MAX: usize = 150;

/// Bans in one report; the others are only counted.
pub const BANS_MAX: usize = 50;

/// A used key and the minute of its last use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyUse {
    /// The key.
    pub key: KeyId,
    /// The minute, since the epoch.
    pub minute: i64,
}

/// A gateway's report about keys: `POST /internal/edge/keys`. A use is sent once, and repeated until accepted; each
/// report has all bans in force at this gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyReport {
    /// The node's name, unique per process start.
    pub node: String,
    /// At most [`KEY_USES_MAX`] keys used since the last report.
    pub used: Vec<KeyUse>,
    /// At most [`BANS_MAX`] bans, those that end last.
    pub bans: Vec<Ban>,
    /// Number of bans in force.
    pub bans_total: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ban::BanReason;
    use crate::time::UnixSeconds;

    /// Checks that the control plane accepts the report and reads it back unchanged.
    fn fits<T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(report: &T) {
        let bytes = serde_json::to_vec(report).unwrap();
        assert!(bytes.len() <= REPORT_BYTES_MAX, "{} bytes", bytes.len());
        assert_eq!(serde_json::from_slice::<T>(&bytes).unwrap(), *report);
    }

    #[test]
    fn the_largest_reports_fit_into_the_limit() {
        let key = KeyId::from_random([255; 10]);
        let node = "n".repeat(128);
        let far = UnixSeconds(i64::from(u32::MAX));
        let ban = Ban {
            key: key.clone(),
            since: far,
            until: far,
            reason: BanReason::Operator,
            level: u32::MAX,
            shadow: false,
        };
        let keys = KeyReport {
            node: node.clone(),
            used: vec![KeyUse { key, minute: 1 << 32 }; KEY_USES_MAX],
            bans: vec![ban; BANS_MAX],
            bans_total: u64::MAX,
        };
        let count = u64::from(u32::MAX);
        let usage = UsageOfProject {
            project: "p".repeat(63).parse().unwrap(),
            day: 1 << 32,
            admitted: count,
            refused: count,
            banned: count,
            minute: 1 << 32,
            in_minute: count,
        };
        let usage = UsageReport { node, projects: vec![usage; USAGE_PROJECTS_MAX] };
        fits(&keys);
        fits(&usage);
    }

    #[test]
    fn reports_are_written_as_other_versions_read_them() {
        let usage = r#"{"node":"n1","projects":[{"project":"demo","day":1,"admitted":2,"refused":3,"banned":4,"minute":5,"in_minute":6}]}"#;
        let read: UsageReport = serde_json::from_str(usage).unwrap();
        assert_eq!((read.projects[0].admitted, read.projects[0].refused, read.projects[0].banned), (2, 3, 4));
        assert_eq!(serde_json::to_string(&read).unwrap(), usage);
        let keys = r#"{"node":"n1","used":[{"key":"key_abcdefghij234567","minute":5}],"bans":[],"bans_total":7}"#;
        let read: KeyReport = serde_json::from_str(keys).unwrap();
        assert_eq!((read.used[0].minute, read.bans_total), (5, 7));
        assert_eq!(serde_json::to_string(&read).unwrap(), keys);
    }
}
