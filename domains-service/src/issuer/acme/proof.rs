//! Proves control of a name: every gateway answers the challenge, and the authority validates it.

use contract::certificate::Challenge;
use instant_acme::{AuthorizationStatus, Error, Order, OrderStatus};

use super::explain::{explain_failed_proof, has_kind};
use super::{AcmeAuthority, NONCES_MAX, POLLING, retry_nonce};
use crate::config::ChallengeKind;
use crate::issuer::{IssueError, IssueRequest};
use crate::store::acme::forget_order;

impl AcmeAuthority {
    /// Proves control of the name: publishes the challenge response, reports it to the authority, and waits for the
    /// result.
    pub(super) async fn prove(&self, order: &mut Order, request: &IssueRequest) -> Result<(), IssueError> {
        // Fetches the authorization with retries for a refused nonce. The code below reads it and sends no request for
        // it.
        let fetched = retry_nonce!(fetch_authorization(order));
        fetched.map_err(|error| self.failed(&error))?;
        let missing = || IssueError::Unavailable("the order has no authorization".to_owned());
        {
            let mut authorizations = order.authorizations();
            let Some(Ok(mut authorization)) = authorizations.next().await else { return Err(missing()) };
            if authorization.status == AuthorizationStatus::Pending {
                let offered = |kind: &ChallengeKind| {
                    authorization.challenges.iter().any(|challenge| challenge.r#type == kind.acme())
                };
                let kinds = self.settings.challenges.iter().copied();
                let kinds: Vec<ChallengeKind> = kinds
                    .filter(|kind| request.methods.is_empty() || request.methods.iter().any(|one| one == kind.as_str()))
                    .filter(offered)
                    .collect();
                let index = usize::try_from(request.attempt).unwrap_or(0) % kinds.len().max(1);
                let Some(kind) = kinds.get(index) else {
                    let words =
                        "the authority offers no challenge type that both the settings and the CAA records allow";
                    return Err(IssueError::Unavailable(words.to_owned()));
                };
                let Some(mut challenge) = authorization.challenge(kind.acme()) else { return Err(missing()) };
                let proof = Challenge {
                    hostname: request.hostname.clone(),
                    token: challenge.token.clone(),
                    key_authorization: challenge.key_authorization().as_str().to_owned(),
                };
                self.records.publish(proof).await?;
                retry_nonce!(challenge.set_ready()).map_err(|error| self.failed(&error))?;
            }
        }
        match retry_nonce!(order.poll_ready(&POLLING)) {
            Ok(OrderStatus::Invalid) => Err(self.why_invalid(order, request).await),
            Ok(_) => Ok(()),
            // The order's own error; an error of a request about it says nothing about the proof.
            Err(Error::Api(_)) if order.state().error.is_some() => Err(self.why_invalid(order, request).await),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// The authority's reason for a failed proof. The order has ended.
    async fn why_invalid(&self, order: &mut Order, request: &IssueRequest) -> IssueError {
        let reason = retry_nonce!(find_failure(order)).ok().flatten();
        let reason = reason.or_else(|| order.state().error.clone());
        let now = self.records.clock.now_seconds();
        let meaning = match reason {
            Some(problem) => explain_failed_proof(&problem, &request.edge, now),
            None => IssueError::Unavailable("the challenge failed without a reason".to_owned()),
        };
        if matches!(meaning, IssueError::Unreachable(_) | IssueError::EdgeUnreachable { .. }) {
            let failure = self.settings.limits.of_failure(&self.settings.name, request.hostname.as_str());
            self.count(&request.hostname, &failure).await;
        }
        if let Err(error) = forget_order(self.records.store.writer(), &self.settings.name, &request.hostname).await {
            tracing::warn!(domain = %request.hostname, %error, "cannot delete a failed order; the next attempt will find it invalid");
        }
        meaning
    }
}

/// Fetches the order's authorization.
pub(super) async fn fetch_authorization(order: &mut Order) -> Result<(), Error> {
    order.authorizations().next().await.transpose().map(|_| ())
}

/// The error that the authority reports at the failed challenge.
async fn find_failure(order: &mut Order) -> Result<Option<instant_acme::Problem>, Error> {
    let mut authorizations = order.authorizations();
    let Some(authorization) = authorizations.next().await else { return Ok(None) };
    let mut authorization = authorization?;
    let state = authorization.refresh().await?;
    Ok(state.challenges.iter().find_map(|challenge| challenge.error.clone()))
}
