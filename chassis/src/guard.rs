//! Who may talk to a service: requests that come with the gateway's token, and operators with the platform's token.
//!
//! Both are middleware for axum. What passes [`require_gateway`] carries an [`Identity`] in its extensions.

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
use contract::identity::{IDENTITY_HEADER, Identity, IdentityKey};
use contract::time::UnixSeconds;
use contract::token::{Claims, IDENTITY_REFUSED_HEADER, IDENTITY_TOKEN_HEADER, KeySet, PublicKey, SigningKey, kid_of};
use contract::trust::pass_audience;
use parking_lot::{Mutex, RwLock};

use crate::clock::Clock;
use crate::refusal::Refusal;
use crate::secret::Secret;
use crate::shutdown::Shutdown;

/// Tokens that were found good and are remembered until they expire, so that each is verified once. A caller has two of
/// them at a time at most, from each gateway.
const TOKENS_REMEMBERED_MAX: usize = 8_192;

/// How often a file of keys is read.
const READ_EVERY: Duration = Duration::from_secs(5);

/// The public keys that a service believes. Clones share them.
#[derive(Clone)]
pub struct TrustedKeys {
    /// Derived from the platform's secret.
    derived: KeySet,
    believed: Arc<RwLock<KeySet>>,
}

impl TrustedKeys {
    /// None, until some are told.
    pub fn none() -> Self {
        Self { derived: KeySet::default(), believed: Arc::default() }
    }

    /// This one always, beside those that are told.
    pub fn always(key: &PublicKey) -> Self {
        let derived: KeySet = [key.clone()].into_iter().collect();
        Self { believed: Arc::new(RwLock::new(derived.clone())), derived }
    }

    /// The key that gateways with the platform's secret sign with.
    ///
    /// # Errors
    /// Never in practice: the derived key always has the right length.
    pub fn derived(platform_secret: &Secret) -> anyhow::Result<Self> {
        Ok(Self::always(token_key(platform_secret)?.public()))
    }

    /// From now on these are believed, beside the derived one.
    pub fn replace(&self, keys: &KeySet) {
        let all = keys.keys().iter().chain(self.derived.keys()).cloned().collect();
        let mut believed = self.believed.write();
        if *believed != all {
            *believed = all;
        }
    }

    /// Believes the keys of a file with a JWK set.
    ///
    /// # Errors
    /// When there is no such file, or no key in it.
    pub fn read(&self, file: &Path) -> anyhow::Result<()> {
        let place = || format!("reading the key set {}", file.display());
        let text = std::fs::read(file).with_context(place)?;
        let keys: KeySet = serde_json::from_slice(&text).with_context(place)?;
        anyhow::ensure!(!keys.keys().is_empty(), "there is no Ed25519 key in {}", file.display());
        self.replace(&keys);
        Ok(())
    }

    /// Reads the file again and again. One that cannot be read changes nothing.
    pub async fn keep_read(self, file: PathBuf, shutdown: Shutdown) {
        let mut failing = false;
        loop {
            tokio::select! {
                () = shutdown.begun() => return,
                () = tokio::time::sleep(READ_EVERY) => {}
            }
            let read = self.read(&file);
            if let (Err(error), false) = (&read, failing) {
                tracing::warn!(error = format!("{error:#}"), "the keys from before are believed");
            }
            failing = read.is_err();
        }
    }

    /// What a token says that was signed lately with one of them, for this audience.
    fn verified(&self, token: &str, audience: &str, now: UnixSeconds) -> Option<Claims> {
        let claims = self.believed.read().verify(token, &[audience], now);
        claims.inspect_err(|error| tracing::debug!(%error, audience, "a token was refused")).ok()
    }

    /// The keys.
    pub fn all(&self) -> KeySet {
        self.believed.read().clone()
    }
}

/// What is needed to check that a request came through the gateway.
#[derive(Clone)]
pub struct GatewayGuard {
    /// For gateways of before there were tokens, which are replaced first or last. Only who has the platform's secret
    /// knows them.
    key: Option<IdentityKey>,
    keys: TrustedKeys,
    audience: Arc<str>,
    clock: Arc<dyn Clock>,
    good: Arc<Mutex<HashMap<String, Claims>>>,
}

impl GatewayGuard {
    /// For the service that is the upstream `audience` in the gateway's configuration.
    pub fn new(platform_secret: Option<&Secret>, keys: TrustedKeys, audience: &str, clock: Arc<dyn Clock>) -> Self {
        let key = platform_secret.map(identity_key);
        Self { key, keys, audience: audience.into(), clock, good: Arc::default() }
    }

    /// The same for another upstream's name.
    #[must_use]
    pub fn for_audience(&self, audience: &str) -> Self {
        Self { audience: audience.into(), good: Arc::default(), ..self.clone() }
    }

    /// What a good token says.
    fn claims(&self, token: &str, now: UnixSeconds) -> Option<Claims> {
        let known = self.good.lock().get(token).cloned();
        let is_good = |claims: &Claims| claims.is_fresh(now) && self.keys.believed.read().has_key_of(token);
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

/// The key identities are signed with by gateways of before there were tokens.
pub fn identity_key(platform_secret: &Secret) -> IdentityKey {
    IdentityKey::new(platform_secret.derive("sign identities").reveal())
}

/// The key that gateways sign tokens with which have the platform's secret and no credential of their own.
///
/// # Errors
/// Never in practice: the derived key always has the right length.
pub fn token_key(platform_secret: &Secret) -> anyhow::Result<SigningKey> {
    Ok(SigningKey::from_seed(platform_secret.derive("sign identity tokens").reveal())?)
}

/// The token with which gateways follow the change stream and report.
pub fn edge_token(platform_secret: &Secret) -> Secret {
    platform_secret.derive("edge feed")
}

/// The token with which services hand their events to the control plane.
pub fn events_token(platform_secret: &Secret) -> Secret {
    platform_secret.derive("events")
}

/// The key that signs passes: of the control plane, and of the command line beside it.
///
/// # Errors
/// Never in practice: the derived key always has the right length.
pub fn pass_key(platform_secret: &Secret) -> anyhow::Result<SigningKey> {
    Ok(SigningKey::from_seed(platform_secret.derive("sign passes of operators").reveal())?)
}

/// A pass for one service, or for all gateways, good for less than a minute: who is shown it can neither use it elsewhere nor for long.
pub fn pass(key: &SigningKey, service: &str, now: UnixSeconds) -> String {
    key.sign(&Claims { audience: pass_audience(service), caller: None, site_project: None, issued_at: now })
}

/// The token with which operators call the internal admin API.
pub fn operator_token(platform_secret: &Secret) -> Secret {
    platform_secret.derive("operator")
}

/// SHA-256 of a token as it is sent: what is kept of it where it is only recognised.
pub fn digest_of(token: &str) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes()).as_ref());
    digest
}

/// The bearer token of a request.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

/// Tokens that open a listener, known by their digests. Clones share them.
#[derive(Clone, Default)]
pub struct Openers(Arc<RwLock<Vec<[u8; 32]>>>);

impl Openers {
    /// Those that these secrets are.
    pub fn of<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let digests = secrets.into_iter().map(|secret| digest_of(&secret.to_token())).collect();
        Self(Arc::new(RwLock::new(digests)))
    }

    /// From now on those with these digests.
    pub fn replace(&self, digests: Vec<[u8; 32]>) {
        *self.0.write() = digests;
    }

    /// Whether this token is one of them. Digests are compared, so time tells nothing of the token.
    pub fn opens(&self, token: &str) -> bool {
        let presented = digest_of(token);
        self.0.read().contains(&presented)
    }
}

/// The answer to who has no good token.
pub fn token_required() -> Response {
    Refusal::new(401, TOKEN_REQUIRED, "Send the platform's token: Authorization: Bearer <token>.").into_response()
}

/// The code of a request that did not come through the gateway.
pub const IDENTITY_REQUIRED: &str = "identity_required";

/// The code of an internal request without the right token.
pub const TOKEN_REQUIRED: &str = "token_required";

/// The name of the public key that verified a request's identity; `None` for a signature with the platform's secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedBy(pub Option<String>);

/// The answer to a request that did not come through a gateway.
pub fn identity_required() -> Response {
    let refusal = Refusal::new(401, IDENTITY_REQUIRED, "This service is reached through the gateway only.");
    refusal.with_header(HeaderName::from_static(IDENTITY_REFUSED_HEADER), "token").into_response()
}

/// Lets through requests with a token that a gateway signed for this service less than a minute ago. Everything else is
/// 401 `identity_required`: it did not come through the gateway, or the gateway's clock or key is wrong. The header says so to
/// a gateway, which answers 503 in its place: no caller is to blame for that. Requests carry their [`Identity`] and [`SignedBy`].
pub async fn require_gateway(State(guard): State<GatewayGuard>, mut request: Request, next: Next) -> Response {
    match identity_of(&guard, &request) {
        Some((identity, signed_by)) => {
            request.extensions_mut().insert(identity);
            request.extensions_mut().insert(signed_by);
            next.run(request).await
        }
        None => identity_required(),
    }
}

fn identity_of(guard: &GatewayGuard, request: &Request) -> Option<(Identity, SignedBy)> {
    let (headers, now) = (request.headers(), guard.clock.now_seconds());
    if headers.contains_key(IDENTITY_TOKEN_HEADER) {
        let token = only(headers, IDENTITY_TOKEN_HEADER)?;
        let claims = guard.claims(token, now)?;
        // The gateway writes both and removes what clients send under these names.
        let client: IpAddr = only(headers, "x-forwarded-for")?.parse().ok()?;
        let identity = claims.into_identity(only(headers, "x-request-id")?.to_owned(), client);
        return Some((identity, SignedBy(kid_of(token))));
    }
    let target = request.uri().path_and_query()?.as_str();
    let signed = only(headers, IDENTITY_HEADER)?;
    let identity = guard.key.as_ref()?.verify(signed, request.method().as_str(), target, now).ok()?;
    Some((identity, SignedBy(None)))
}

/// The value of a header that comes once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() { None } else { Some(value) }
}

/// Who opens the internal listener of a service, or the admin listener of a gateway: operators with a pass of the control
/// plane. Clones share whom they believe.
#[derive(Clone)]
pub struct PassGuard {
    keys: TrustedKeys,
    audience: Arc<str>,
    /// Of command lines of before there were passes.
    tokens: Openers,
    clock: Arc<dyn Clock>,
}

impl PassGuard {
    /// Of the service with this name on record, or of a gateway ([`contract::trust::GATEWAYS`]). One that has the platform's
    /// secret takes the operators' token that derives from it, too.
    pub fn new(keys: TrustedKeys, service: &str, platform_secret: Option<&Secret>, clock: Arc<dyn Clock>) -> Self {
        let tokens = Openers::of(platform_secret.map(operator_token).as_ref());
        Self { keys, audience: pass_audience(service).into(), tokens, clock }
    }

    /// From now on passes signed with one of these keys; tokens with these digests only where there are no passes.
    pub fn replace(&self, keys: &KeySet, tokens: Vec<[u8; 32]>) {
        self.keys.replace(keys);
        self.tokens.replace(if keys.keys().is_empty() { tokens } else { Vec::new() });
    }

    fn opens(&self, token: &str) -> bool {
        self.tokens.opens(token) || self.keys.verified(token, &self.audience, self.clock.now_seconds()).is_some()
    }
}

/// Lets through requests that carry `Authorization: Bearer <pass>`.
pub async fn require_pass(State(guard): State<PassGuard>, request: Request, next: Next) -> Response {
    if bearer(request.headers()).is_some_and(|token| guard.opens(token)) {
        next.run(request).await
    } else {
        token_required()
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
            issued_at: UnixSeconds(1_000),
        };
        let header = identity_key(&secret).sign(&identity, "GET", "/");
        let derived = Secret::new(secret.derive("sign identities").reveal().to_vec());
        assert_eq!(&**derived.to_token(), "9hKuAqN90Tm0-z5z-eVNcD3pwxY-NOs9SjItnM6tvX4");
        assert!(IdentityKey::new(derived.reveal()).verify(&header, "GET", "/", identity.issued_at).is_ok());
    }
}
