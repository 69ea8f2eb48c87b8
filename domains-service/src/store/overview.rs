//! An operator's overview: the certificates that expire first, and domains without progress.

use super::{Result, Store};
use crate::domain::CertificateState;
use chassis::sql::{Found, query_as};
use contract::time::UnixMillis;
use domains_api::types::{EndingCertificate, StuckDomain};
use verification::problem::Problem;

/// Certificates that are read to find those that expire first: reading a million domains would take too long.
const CANDIDATES_MAX: i64 = 2_000;

impl Store {
    /// Served domains with the earliest expiry of their certificates, among those longest unchanged: a renewal changes
    /// its domain.
    pub(crate) async fn certificates_ending(&self, limit: i64) -> Result<Vec<EndingCertificate>> {
        let rows = query_as(
            "SELECT name, (SELECT p.name FROM projects p WHERE p.id = project), certificate FROM domains WHERE status IN ('active', 'degraded')
             ORDER BY updated_at LIMIT $1",
        );
        let rows: Vec<Found<(String, String, String)>> = rows.bind(CANDIDATES_MAX).fetch_all(self.reader()).await?;
        let mut found = Vec::new();
        for Found { row: (name, project, certificate), .. } in rows {
            // An unreadable row is recorded when its domain is due.
            if let Ok(CertificateState { not_after: Some(end), ca, .. }) = serde_json::from_str(&certificate) {
                found.push((end, EndingCertificate { name, project, ca, not_after: end.into() }));
            }
        }
        found.sort_by_key(|(end, _)| *end);
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(found.into_iter().map(|(_, certificate)| certificate).collect())
    }

    /// Domains that wait for an action, the longest-waiting first.
    pub(crate) async fn stuck_domains(&self, limit: i64) -> Result<Vec<StuckDomain>> {
        /// Name, project, status, problems, since.
        type StuckRow = (String, String, String, String, i64);
        let rows = query_as(
            "SELECT name, (SELECT p.name FROM projects p WHERE p.id = project), status, problems, status_since FROM domains
             WHERE status IN ('action_required', 'degraded', 'suspended') ORDER BY status_since LIMIT $1",
        );
        let rows: Vec<Found<StuckRow>> = rows.bind(limit).fetch_all(self.reader()).await?;
        let rows = rows.into_iter().map(|found| {
            let (name, project, status, problems, since) = found.row;
            let problems: Vec<Problem> = serde_json::from_str(&problems).unwrap_or_default();
            let problem = problems.into_iter().next().map(|first| first.message);
            StuckDomain { name, project, status, problem, since: UnixMillis(since).into() }
        });
        Ok(rows.collect())
    }
}
