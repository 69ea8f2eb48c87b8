//! Reports of gateways about themselves.

use serde::{Deserialize, Serialize};

use super::{Mark, Position, Revision};
use crate::hostname::Hostname;

/// A gateway's report: `POST /internal/edge/nodes`, after every applied batch, every second, and once after it has
/// stopped serving.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeReport {
    /// The node's name, unique per process start: 1 to 128 characters without a slash.
    pub node: String,
    /// The identity of the process's data directory, 16 hexadecimal digits: a process that starts in the directory of
    /// an earlier one replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// All changes up to this revision are applied: stored, cached entries dropped, connections of removed names
    /// refused.
    pub applied: Revision,
    /// The mark of that revision. A control plane whose database has another mark there refuses the report with status
    /// 409, code [`HISTORY`](super::HISTORY). Absent while nothing is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// The node's version, for operators.
    pub version: String,
    /// The process has stopped serving and will not report again: removals no longer wait for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub goodbye: bool,
    /// Names of handshakes without a certificate since the last report, at most [`UNSERVED_MAX`]: the control plane
    /// looks at once at those that are attached and not active yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unserved: Vec<Hostname>,
}

/// Names of handshakes in one report.
pub const UNSERVED_MAX: usize = 16;

impl NodeReport {
    /// The position of the process; `None` if nothing is applied or the mark is absent.
    pub fn position(&self) -> Option<Position> {
        let mark = self.mark.filter(|_| self.applied > Revision::default())?;
        Some(Position { revision: self.applied, mark })
    }

    /// The same report for a process that has applied nothing.
    #[must_use]
    pub fn of_nothing(self) -> Self {
        Self { applied: Revision::default(), mark: None, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_written_as_other_versions_read_it() {
        let text = r#"{"node":"n1","applied":0,"version":"1.2.3"}"#;
        let report = NodeReport { node: "n1".to_owned(), version: "1.2.3".to_owned(), ..NodeReport::default() };
        assert_eq!(serde_json::to_string(&report).unwrap(), text);
        assert_eq!(serde_json::from_str::<NodeReport>(text).unwrap(), report);
        let text = r#"{"node":"n1","place":"00000000000000ff","applied":8,"mark":"0000000000000009","version":"1.2.3","goodbye":true}"#;
        let last = NodeReport {
            place: Some("00000000000000ff".to_owned()),
            applied: Revision(8),
            mark: Some(Mark(9)),
            goodbye: true,
            ..report.clone()
        };
        assert_eq!(serde_json::to_string(&last).unwrap(), text);
        assert_eq!(serde_json::from_str::<NodeReport>(text).unwrap(), last);
        assert_eq!(last.position(), Some(Position { revision: Revision(8), mark: Mark(9) }));
        assert_eq!((report.position(), last.of_nothing().position()), (None, None));
    }
}
