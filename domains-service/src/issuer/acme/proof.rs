//! Proves control of a name: every gateway answers the challenge, and the authority validates it.

use std::time::Duration;

use contract::certificate::Challenge;
use contract::feed::Entity;
use instant_acme::{AuthorizationStatus, Error, Order, OrderStatus};

use super::explain::{explain_failed_proof, has_kind, is_gone};
use super::{AcmeAuthority, NONCES_MAX, POLLING, retry_nonce};
use crate::config::ChallengeKind;
use crate::issuer::{IssueError, IssueRequest};
use crate::publish;
use crate::store::acme::forget_order;

/// Longest wait until the gateways have applied a challenge. It covers their return after our restart. A slower gateway
/// only fails this attempt.
const LEARNING_TIME_MAX: Duration = Duration::from_secs(12);

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
                self.publish(proof).await?;
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

    /// Has every live gateway answer the challenge.
    async fn publish(&self, challenge: Challenge) -> Result<(), IssueError> {
        let hostname = challenge.hostname.clone();
        let mut write = self.core.store.write().await?;
        // One at a time: an answer by certificate is found by the name alone.
        publish::withdraw_challenges(&mut write, &hostname).await?;
        write.put(Entity::Challenge(challenge)).await?;
        let revision = write.commit().await?;
        let learnt = self.nodes.acknowledged(revision, LEARNING_TIME_MAX).await;
        if !learnt.lagging.is_empty() {
            tracing::warn!(domain = %hostname, gateways = learnt.lagging.join(", "), "these gateways have not received the challenge; the order may fail");
        }
        Ok(())
    }

    /// The authority's reason for a failed proof. The order has ended.
    async fn why_invalid(&self, order: &mut Order, request: &IssueRequest) -> IssueError {
        let reason = retry_nonce!(find_failure(order)).ok().flatten();
        let reason = reason.or_else(|| order.state().error.clone());
        let now = self.core.clock.now_seconds();
        let meaning = match reason {
            Some(problem) => explain_failed_proof(&problem, &request.edge, now),
            None => IssueError::Unavailable("the challenge failed without a reason".to_owned()),
        };
        if matches!(meaning, IssueError::Unreachable(_) | IssueError::EdgeUnreachable { .. }) {
            let failure = self.settings.limits.of_failure(&self.settings.name, request.hostname.as_str());
            self.count(&request.hostname, &failure).await;
        }
        if let Err(error) = forget_order(self.core.store.writer(), &self.settings.name, &request.hostname).await {
            tracing::warn!(domain = %request.hostname, %error, "cannot delete a failed order; the next attempt will find it invalid");
        }
        meaning
    }

    /// Deactivates the authorizations of an order.
    pub(super) async fn deactivate(&self, url: &str) -> Result<(), Error> {
        let account = self.account().await.map_err(|error| Error::Other(Box::new(error)))?;
        let mut order = match retry_nonce!(account.order(url.to_owned())) {
            Err(error) if is_gone(&error) => return Ok(()),
            other => other?,
        };
        retry_nonce!(fetch_authorization(&mut order))?;
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if matches!(authorization.status, AuthorizationStatus::Pending | AuthorizationStatus::Valid) {
                retry_nonce!(deactivate_one(&mut authorization))?;
            }
        }
        Ok(())
    }
}

async fn deactivate_one(authorization: &mut instant_acme::AuthorizationHandle<'_>) -> Result<(), Error> {
    authorization.deactivate().await.map(|_| ())
}

/// Fetches the order's authorization.
async fn fetch_authorization(order: &mut Order) -> Result<(), Error> {
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
