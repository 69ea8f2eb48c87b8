//! Admits requests with the gateway's token, and operators with a pass.
//!
//! Both are axum middleware. A request that passes [`require_gateway`] carries an [`Identity`] in its extensions.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use contract::identity::Identity;
use contract::time::UnixSeconds;
use contract::token::{Claims, IDENTITY_REFUSED_HEADER, IDENTITY_TOKEN_HEADER, KeySet, SigningKey, kid_of};
use contract::trust::PassFor;
use parking_lot::{Mutex, RwLock};

use crate::clock::Clock;
use crate::refusal::Refusal;
use crate::secret::{Secret, read_regular};
use crate::shutdown::Shutdown;

/// Verified tokens, remembered until they expire, so that each is verified once. A caller has at most two at a time
/// from each gateway.
const TOKENS_REMEMBERED_MAX: usize = 8_192;

/// How often a key file is read.
const READ_EVERY: Duration = Duration::from_secs(5);

/// The largest file of a key set.
const KEY_SET_BYTES_MAX: u64 = 1024 * 1024;

/// The public keys that a service trusts. Clones share them.
#[derive(Clone)]
pub struct TrustedKeys(Arc<RwLock<KeySet>>);

impl TrustedKeys {
    /// No keys, until some are set.
    pub fn none() -> Self {
        Self(Arc::default())
    }

    /// Replaces the trusted keys.
    pub fn replace(&self, keys: &KeySet) {
        let mut trusted = self.0.write();
        if *trusted != *keys {
            trusted.clone_from(keys);
        }
    }

    /// Trusts the keys of a JWK set file.
    ///
    /// # Errors
    /// If there is no such file, or no key in it.
    pub fn read(&self, file: &Path) -> anyhow::Result<()> {
        let place = || format!("reading the key set {}", file.display());
        let (text, _) = read_regular(file, KEY_SET_BYTES_MAX).with_context(place)?;
        let keys: KeySet = serde_json::from_slice(&text).with_context(place)?;
        anyhow::ensure!(!keys.keys().is_empty(), "there is no Ed25519 key in {}", file.display());
        self.replace(&keys);
        Ok(())
    }

    /// Reads the file periodically. A file that cannot be read changes nothing.
    pub async fn keep_read(self, file: PathBuf, shutdown: Shutdown) {
        let mut failing = false;
        loop {
            shutdown.pause(READ_EVERY).await;
            if shutdown.has_begun() {
                return;
            }
            let read = self.read(&file);
            if let (Err(error), false) = (&read, failing) {
                tracing::warn!(error = format!("{error:#}"), "cannot read the key file; keeping the previous keys");
            }
            failing = read.is_err();
        }
    }

    /// The claims of a token that was recently signed with one of them, for this audience.
    fn verified(&self, token: &str, audience: &str, now: UnixSeconds) -> Option<Claims> {
        let claims = self.0.read().verify(token, &[audience], now);
        claims.inspect_err(|error| tracing::debug!(%error, audience, "refused a token")).ok()
    }

    /// The keys.
    pub fn all(&self) -> KeySet {
        self.0.read().clone()
    }
}

/// Checks that a request came through the gateway.
#[derive(Clone)]
pub struct GatewayGuard {
    keys: TrustedKeys,
    audience: Arc<str>,
    clock: Arc<dyn Clock>,
    good: Arc<Mutex<HashMap<String, Claims>>>,
}

impl GatewayGuard {
    /// For the service that the gateway's configuration calls `audience`.
    pub fn new(keys: TrustedKeys, audience: &str, clock: Arc<dyn Clock>) -> Self {
        Self { keys, audience: audience.into(), clock, good: Arc::default() }
    }

    /// The same for another upstream's name.
    #[must_use]
    pub fn for_audience(&self, audience: &str) -> Self {
        Self { audience: audience.into(), good: Arc::default(), ..self.clone() }
    }

    /// The identity in a request's header fields, if its token is valid now.
    pub fn identity_of(&self, headers: &HeaderMap) -> Option<(Identity, SignedBy)> {
        let token = only(headers, IDENTITY_TOKEN_HEADER)?;
        let claims = self.claims(token, self.clock.now_seconds())?;
        // The gateway sets both fields and removes those that clients send.
        let client: IpAddr = only(headers, "x-forwarded-for")?.parse().ok()?;
        let identity = claims.into_identity(only(headers, "x-request-id")?.to_owned(), client);
        Some((identity, SignedBy(kid_of(token)?)))
    }

    /// The claims of a valid token.
    fn claims(&self, token: &str, now: UnixSeconds) -> Option<Claims> {
        let known = self.good.lock().get(token).cloned();
        let is_good = |claims: &Claims| claims.is_fresh(now) && self.keys.0.read().has_key_of(token);
        if let Some(claims) = known.filter(is_good) {
            return Some(claims);
        }
        let claims = self.keys.verified(token, &self.audience, now)?;
        let mut good = self.good.lock();
        if good.len() >= TOKENS_REMEMBERED_MAX {
            good.retain(|_, claims| claims.is_fresh(now));
        }
        if good.len() < TOKENS_REMEMBERED_MAX {
            good.insert(token.to_owned(), claims.clone());
        }
        Some(claims)
    }
}

/// The key that signs passes, for the control plane and the local command line.
///
/// # Errors
/// Never in practice: the derived key always has the right length.
pub fn pass_key(platform_secret: &Secret) -> anyhow::Result<SigningKey> {
    Ok(SigningKey::from_seed(platform_secret.derive("sign passes of operators").reveal())?)
}

/// A pass for one service or one gateway, valid for less than a minute.
pub fn pass(key: &SigningKey, to: &PassFor, now: UnixSeconds) -> String {
    key.sign(&Claims { audience: to.audience(), caller: None, site_project: None, issued_at: now })
}

/// The token with which operators call the internal admin API.
pub fn operator_token(platform_secret: &Secret) -> Secret {
    platform_secret.derive("operator")
}

/// SHA-256 of a token as sent, stored where a token is only compared.
pub fn digest_of(token: &str) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes()).as_ref());
    digest
}

/// The bearer token of a request.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

/// The response to a request without a valid token.
pub fn token_required() -> Response {
    GuardCode::TokenRequired.refuse().into_response()
}

contract::catalogue! {
    /// One refusal of the guards of this module, in every service.
    pub enum GuardCode {
        /// The request did not come through the gateway.
        IdentityRequired = 401 "identity_required" "This service is reached through the gateway only.", Platform;
        /// An internal request came without the right token.
        TokenRequired = 401 "token_required" "Send the platform's token: Authorization: Bearer <token>.", Platform;
    }
}

impl GuardCode {
    fn refuse(self) -> Refusal {
        Refusal::new(self.status(), self.code(), self.message())
    }
}

/// The id of the public key that verified a request's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedBy(pub String);

/// The response to a request that did not come through a gateway.
pub fn identity_required() -> Refusal {
    GuardCode::IdentityRequired.refuse().with_header(HeaderName::from_static(IDENTITY_REFUSED_HEADER), "token")
}

/// Passes requests with a token that a gateway signed for this service less than a minute ago. Others get 401
/// `identity_required`: they did not come through the gateway, or the gateway's clock or key is wrong. A header tells
/// the gateway, which answers 503 instead, because no caller is to blame. Passed requests carry their [`Identity`] and
/// [`SignedBy`].
pub async fn require_gateway(State(guard): State<GatewayGuard>, mut request: Request, next: Next) -> Response {
    match guard.identity_of(request.headers()) {
        Some((identity, signed_by)) => {
            request.extensions_mut().insert(identity);
            request.extensions_mut().insert(signed_by);
            next.run(request).await
        }
        None => identity_required().into_response(),
    }
}

/// The value of a header that occurs exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() { None } else { Some(value) }
}

/// Guards the internal listener of a service or the admin listener of a gateway: operators need a pass of the control
/// plane. Clones share the trusted keys.
#[derive(Clone)]
pub struct PassGuard {
    keys: TrustedKeys,
    /// The audience of accepted passes; `None` for a gateway that does not know its registered name yet.
    audience: Arc<RwLock<Option<String>>>,
    clock: Arc<dyn Clock>,
}

impl PassGuard {
    /// For the service with this registered name.
    pub fn of_service(keys: TrustedKeys, service: &str, clock: Arc<dyn Clock>) -> Self {
        let audience = PassFor::service(service).audience();
        Self { keys, audience: Arc::new(RwLock::new(Some(audience))), clock }
    }

    /// For a gateway, which accepts no pass before [`PassGuard::replace`].
    pub fn of_gateway(clock: Arc<dyn Clock>) -> Self {
        Self { keys: TrustedKeys::none(), audience: Arc::default(), clock }
    }

    /// Accepts passes for the gateway with this registered name, signed with one of these keys.
    pub fn replace(&self, gateway: &str, keys: &KeySet) {
        *self.audience.write() = Some(PassFor::gateway(gateway).audience());
        self.keys.replace(keys);
    }

    fn opens(&self, token: &str) -> bool {
        let audience = self.audience.read();
        let is_good = |audience: &String| self.keys.verified(token, audience, self.clock.now_seconds()).is_some();
        audience.as_ref().is_some_and(is_good)
    }
}

/// Passes requests that carry `Authorization: Bearer <pass>`.
pub async fn require_pass(State(guard): State<PassGuard>, request: Request, next: Next) -> Response {
    if bearer(request.headers()).is_some_and(|token| guard.opens(token)) {
        next.run(request).await
    } else {
        token_required()
    }
}

#[cfg(test)]
mod tests {
    use contract::time::UnixMillis;

    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn an_identity_comes_once_and_ends_with_its_minute_and_with_its_key() {
        let (signing, keys) = (SigningKey::from_seed(&[1; 32]).unwrap(), TrustedKeys::none());
        let trusted = [signing.public().clone()].into_iter().collect();
        keys.replace(&trusted);
        let clock = Arc::new(ManualClock::at(UnixMillis(1_700_000_000_000)));
        let guard = GatewayGuard::new(keys.clone(), "orders", clock.clone());
        let fields = || {
            let (audience, issued_at) = ("orders".to_owned(), clock.now_seconds());
            let token = signing.sign(&Claims { audience, caller: None, site_project: None, issued_at });
            let fields = [(IDENTITY_TOKEN_HEADER, token.as_str()), ("x-request-id", "r1"), ("x-forwarded-for", "::1")];
            let fields = fields.map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
            HeaderMap::from_iter(fields)
        };
        let of_now = fields();
        assert!(guard.identity_of(&of_now).is_some());
        for name in of_now.keys() {
            let (mut twice, mut without) = (of_now.clone(), of_now.clone());
            twice.append(name, of_now[name].clone());
            without.remove(name);
            assert!(guard.identity_of(&twice).is_none(), "{name} twice");
            assert!(guard.identity_of(&without).is_none(), "no {name}");
        }
        assert!(guard.for_audience("another").identity_of(&of_now).is_none());
        clock.advance(Duration::from_secs(59));
        assert!(guard.identity_of(&of_now).is_some());
        clock.advance(Duration::from_secs(1));
        assert!(guard.identity_of(&of_now).is_none(), "a minute is over");
        let of_then = fields();
        assert!(guard.identity_of(&of_then).is_some());
        keys.replace(&KeySet::default());
        assert!(guard.identity_of(&of_then).is_none(), "its key is withdrawn");
    }

    // The control plane and the command line may have different versions during an update.
    #[test]
    fn every_version_derives_the_same_token() {
        let token = operator_token(&Secret::new(vec![7; 32])).to_token();
        assert_eq!(&**token, "sFaITyDXesHGoiUKhcImRq7hSoZyCwKiqfnzuBGPJmU");
    }
}
