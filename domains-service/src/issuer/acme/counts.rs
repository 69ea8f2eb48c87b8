//! The local count of the authority's limits, as one authority uses it.

use contract::hostname::Hostname;

use super::AcmeAuthority;
use crate::issuer::{IssueError, IssueRequest};
use crate::limits::{Demand, QueueKind, QueuePosition};
use crate::store::queue::Applicant;

impl AcmeAuthority {
    /// Takes an order's demands from the local count of the authority's limits if it is the name's turn; otherwise the
    /// name waits in a queue for them.
    pub(super) async fn admit(&self, request: &IssueRequest, replaces: bool) -> Result<(), IssueError> {
        if !self.settings.mirror_limits {
            return Ok(());
        }
        let (authority, name) = (&self.settings.name, request.hostname.as_str());
        let demands = self.settings.limits.of_order(authority, request.project.as_str(), name, replaces);
        let queued =
            |(kind, QueuePosition { number, .. }): (QueueKind, _)| IssueError::Queued { number, is_own: kind.is_own() };
        self.core.store.admit(self.applicant(request), &demands).await?.map_err(queued)
    }

    pub(super) fn applicant<'a>(&'a self, request: &'a IssueRequest) -> Applicant<'a> {
        Applicant { authority: &self.settings.name, hostname: &request.hostname, project: &request.project }
    }

    /// Counts what has happened in the local limits.
    pub(super) async fn count(&self, hostname: &Hostname, demands: &[Demand]) {
        if !self.settings.mirror_limits || demands.is_empty() {
            return;
        }
        match self.core.store.take(demands).await {
            Ok(true) => {}
            Ok(false) => {
                tracing::debug!(domain = %hostname, "the authority allowed more than the local count of its limits");
            }
            Err(error) => {
                tracing::warn!(domain = %hostname, %error, "cannot count a certificate; orders may exceed the limits");
            }
        }
    }
}
