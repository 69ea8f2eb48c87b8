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
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use contract::identity::{IDENTITY_HEADER, Identity, IdentityKey};
use contract::time::UnixSeconds;
use contract::token::{Claims, IDENTITY_TOKEN_HEADER, KeySet, SigningKey};
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
    /// Derived from the platform's secret: of gateways that have that secret and no credential of their own.
    derived: KeySet,
    believed: Arc<RwLock<KeySet>>,
}

impl TrustedKeys {
    /// The key that gateways with the platform's secret sign with.
    ///
    /// # Errors
    /// Never in practice: the derived key always has the right length.
    pub fn derived(platform_secret: &Secret) -> anyhow::Result<Self> {
        let derived: KeySet = [token_key(platform_secret)?.public().clone()].into_iter().collect();
        Ok(Self { believed: Arc::new(RwLock::new(derived.clone())), derived })
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

    /// The keys.
    pub fn all(&self) -> KeySet {
        self.believed.read().clone()
    }
}

/// What is needed to check that a request came through the gateway.
#[derive(Clone)]
pub struct GatewayGuard {
    /// For gateways of before there were tokens, which are replaced first or last.
    key: IdentityKey,
    keys: TrustedKeys,
    audience: Arc<str>,
    clock: Arc<dyn Clock>,
    good: Arc<Mutex<HashMap<String, Claims>>>,
}

impl GatewayGuard {
    /// For the service that is the upstream `audience` in the gateway's configuration.
    pub fn new(platform_secret: &Secret, keys: TrustedKeys, audience: &str, clock: Arc<dyn Clock>) -> Self {
        Self { key: identity_key(platform_secret), keys, audience: audience.into(), clock, good: Arc::default() }
    }

    /// The same for another upstream's name.
    #[must_use]
    pub fn for_audience(&self, audience: &str) -> Self {
        Self { audience: audience.into(), good: Arc::default(), ..self.clone() }
    }

    /// What a good token says.
    fn claims(&self, token: &str, now: UnixSeconds) -> Option<Claims> {
        let keys = self.keys.believed.read();
        let known = self.good.lock().get(token).cloned();
        if let Some(claims) = known.filter(|claims| claims.is_fresh(now) && keys.has_key_of(token)) {
            return Some(claims);
        }
        let claims = keys.verify(token, &[&self.audience], now);
        drop(keys);
        let claims = claims.inspect_err(|error| tracing::debug!(%error, "an identity token was refused")).ok()?;
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

/// The token with which operators call the internal admin API.
pub fn operator_token(platform_secret: &Secret) -> Secret {
    platform_secret.derive("operator")
}

/// The token with which operators call the admin listeners of gateways. It opens nothing else: a gateway in wrong hands
/// that is asked learns it.
pub fn gateway_operator_token(platform_secret: &Secret) -> Secret {
    platform_secret.derive("operator of gateways")
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

/// Lets through requests that carry `Authorization: Bearer <token>` with one of these tokens.
pub async fn require_opener(State(openers): State<Openers>, request: Request, next: Next) -> Response {
    if bearer(request.headers()).is_some_and(|token| openers.opens(token)) {
        next.run(request).await
    } else {
        token_required()
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

/// Lets through requests with a token that a gateway signed for this service less than a minute ago. Everything else is
/// 401 `identity_required`: it did not come through the gateway.
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
    let (headers, now) = (request.headers(), guard.clock.now_seconds());
    if headers.contains_key(IDENTITY_TOKEN_HEADER) {
        let claims = guard.claims(only(headers, IDENTITY_TOKEN_HEADER)?, now)?;
        // The gateway writes both and removes what clients send under these names.
        let client: IpAddr = only(headers, "x-forwarded-for")?.parse().ok()?;
        return Some(claims.into_identity(only(headers, "x-request-id")?.to_owned(), client));
    }
    let target = request.uri().path_and_query()?.as_str();
    guard.key.verify(only(headers, IDENTITY_HEADER)?, request.method().as_str(), target, now).ok()
}

/// The value of a header that comes once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() { None } else { Some(value) }
}

/// Lets through requests that carry `Authorization: Bearer <token>` of the given secret.
pub async fn require_token(State(token): State<Arc<Secret>>, request: Request, next: Next) -> Response {
    if bearer(request.headers()).is_some_and(|presented| token.matches_token(presented)) {
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
