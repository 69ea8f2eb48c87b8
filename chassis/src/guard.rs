//! Who may talk to a service: requests the gateway has signed, and operators with the platform's token.
//!
//! Both are middleware for axum. What passes [`require_gateway`] carries an [`Identity`] in its extensions.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use contract::identity::{IDENTITY_HEADER, Identity, IdentityKey};

use crate::clock::Clock;
use crate::refusal::Refusal;
use crate::secret::Secret;

/// What is needed to check the gateway's signature.
#[derive(Clone)]
pub struct GatewayGuard {
    key: IdentityKey,
    clock: Arc<dyn Clock>,
}

impl GatewayGuard {
    /// With the platform's secret; both sides derive the same key from it.
    pub fn new(platform_secret: &Secret, clock: Arc<dyn Clock>) -> Self {
        Self { key: identity_key(platform_secret), clock }
    }
}

/// The key identities are signed with.
pub fn identity_key(platform_secret: &Secret) -> IdentityKey {
    IdentityKey::new(platform_secret.derive("sign identities").reveal())
}

/// The token with which gateways follow the change stream and report.
pub fn edge_token(platform_secret: &Secret) -> Secret {
    platform_secret.derive("edge feed")
}

/// The token with which services hand their events to the control plane.
pub fn events_token(platform_secret: &Secret) -> Secret {
    platform_secret.derive("events")
}

/// The token with which operators call the internal admin API.
pub fn operator_token(platform_secret: &Secret) -> Secret {
    platform_secret.derive("operator")
}

/// The code of a request that did not come through the gateway.
pub const IDENTITY_REQUIRED: &str = "identity_required";

/// The code of an internal request without the right token.
pub const TOKEN_REQUIRED: &str = "token_required";

/// Lets through requests whose identity the gateway signed for exactly this method and target, less than a minute
/// ago. Everything else is 401 `identity_required`: it did not come through the gateway.
pub async fn require_gateway(State(guard): State<GatewayGuard>, mut request: Request, next: Next) -> Response {
    match identity_of(&guard, &request) {
        Some(identity) => {
            request.extensions_mut().insert(identity);
            next.run(request).await
        }
        None => {
            Refusal::new(401, IDENTITY_REQUIRED, "This service is reached through the gateway only.").into_response()
        }
    }
}

fn identity_of(guard: &GatewayGuard, request: &Request) -> Option<Identity> {
    let mut values = request.headers().get_all(IDENTITY_HEADER).iter();
    let header = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let target = request.uri().path_and_query()?.as_str();
    guard.key.verify(header, request.method().as_str(), target, guard.clock.now_seconds()).ok()
}

/// Lets through requests that carry `Authorization: Bearer <token>` of the given secret.
pub async fn require_token(State(token): State<Arc<Secret>>, request: Request, next: Next) -> Response {
    let presented = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    if presented.is_some_and(|presented| token.matches_token(presented)) {
        next.run(request).await
    } else {
        Refusal::new(401, TOKEN_REQUIRED, "Send the platform's token: Authorization: Bearer <token>.").into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Processes of different versions speak to each other while a platform is updated.
    #[test]
    fn every_version_derives_the_same_tokens_and_the_same_key() {
        let secret = Secret::new(vec![7; 32]);
        for (token, text) in [
            (edge_token(&secret), "LpnV3U-srjVvcVKasJvLug797JcGff-Gl3PPlmONNNw"),
            (events_token(&secret), "5R6zdQqOpS5dqngqtAtZisvyfFgeZSqR1cV7UgXfOsk"),
            (operator_token(&secret), "sFaITyDXesHGoiUKhcImRq7hSoZyCwKiqfnzuBGPJmU"),
        ] {
            assert_eq!(&**token.to_token(), text);
        }
        let identity = Identity {
            request_id: "r1".to_owned(),
            client: std::net::Ipv4Addr::LOCALHOST.into(),
            site_project: None,
            caller: None,
            issued_at: contract::time::UnixSeconds(1_000),
        };
        let header = identity_key(&secret).sign(&identity, "GET", "/");
        let derived = Secret::new(secret.derive("sign identities").reveal().to_vec());
        assert_eq!(&**derived.to_token(), "9hKuAqN90Tm0-z5z-eVNcD3pwxY-NOs9SjItnM6tvX4");
        assert!(IdentityKey::new(derived.reveal()).verify(&header, "GET", "/", identity.issued_at).is_ok());
    }
}
