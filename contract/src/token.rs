//! The caller's identity as a signed token that any upstream can verify with a public key.
//!
//! The gateway signs a JSON Web Token (RFC 7519) with `EdDSA` over Ed25519 (RFC 8037) and sends it as
//! `Tollhouse-Identity-Token` to upstreams that request it. A token is valid for one upstream, its `aud`, and for
//! [`TOKEN_AGE_MAX_SECONDS`]. It identifies the caller, not the request: all requests of a caller carry the same token
//! while it is fresh. The public keys are published as a JWK set (RFC 7517). `docs/tenant/identity.md` explains how to
//! verify tokens.

use std::net::IpAddr;

use aws_lc_rs::digest;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::identity::{Caller, Identity};
use crate::project::ProjectId;
use crate::time::UnixSeconds;

/// The header's name, lower case.
pub const IDENTITY_TOKEN_HEADER: &str = "tollhouse-identity-token";

/// The header of a 401 by which a service says that it refuses the gateway's token, or its absence, and not the caller:
/// the gateway answers 503 `identity_refused` and returns the unit. Its value is a message for people.
pub const IDENTITY_REFUSED_HEADER: &str = "tollhouse-identity-refused";

/// The path of the public keys on the platform's own hosts.
pub const KEY_SET_PATH: &str = "/.well-known/tollhouse/jwks.json";

/// `iss` of every token.
pub const ISSUER: &str = "tollhouse";

/// Seconds from `iat` to `exp`.
pub const TOKEN_AGE_MAX_SECONDS: i64 = 60;

/// How far the gateway's clock may be ahead of the service's, in seconds.
pub const CLOCKS_APART_MAX_SECONDS: i64 = 30;

/// The longest token that is parsed. A token of a caller with all scopes has about 600 bytes.
pub const TOKEN_BYTES_MAX: usize = 4 * 1024;

/// Keys of one set. The control plane publishes at most three for each of 256 gateways: the next, the current and the
/// previous.
pub const KEYS_MAX: usize = 1_024;

/// Length of a private key in bytes.
pub const SEED_BYTES: usize = 32;

const PUBLIC_KEY_BYTES: usize = 32;

/// The content of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// `aud`: the upstream, by its name in the gateway's configuration.
    pub audience: String,
    /// The caller; absent if the site needs no key. `sub` is the key's id, the other fields keep their names.
    pub caller: Option<Caller>,
    /// The project of the requested site; absent on the platform's own hosts.
    pub site_project: Option<ProjectId>,
    /// `iat`: when the token was signed.
    pub issued_at: UnixSeconds,
}

impl Claims {
    /// The part of `identity` that does not depend on the request, for one upstream.
    pub fn of(identity: &Identity, audience: &str) -> Self {
        Self {
            audience: audience.to_owned(),
            caller: identity.caller.clone(),
            site_project: identity.site_project.clone(),
            issued_at: identity.issued_at,
        }
    }

    /// The identity of a request with this token. The request's id and the client's address are not part of the token.
    pub fn into_identity(self, request_id: String, client: IpAddr) -> Identity {
        Identity { request_id, client, site_project: self.site_project, caller: self.caller, issued_at: self.issued_at }
    }

    /// Whether the claims of a verified token are still fresh.
    pub fn is_fresh(&self, now: UnixSeconds) -> bool {
        let age = now.0.saturating_sub(self.issued_at.0);
        (-CLOCKS_APART_MAX_SECONDS..TOKEN_AGE_MAX_SECONDS).contains(&age)
    }

    /// The caller's fields become claims under their own names; the key's id is `sub`.
    fn to_json(&self) -> Map<String, Value> {
        let mut claims = match serde_json::to_value(&self.caller) {
            Ok(Value::Object(caller)) => caller,
            // A request without a caller.
            _ => Map::new(),
        };
        if let Some(key) = claims.remove("key") {
            claims.insert("sub".to_owned(), key);
        }
        if let Some(project) = &self.site_project {
            claims.insert("site_project".to_owned(), project.as_str().into());
        }
        claims.insert("iss".to_owned(), ISSUER.into());
        claims.insert("aud".to_owned(), self.audience.as_str().into());
        claims.insert("iat".to_owned(), self.issued_at.0.into());
        claims.insert("exp".to_owned(), self.issued_at.plus(TOKEN_AGE_MAX_SECONDS).0.into());
        claims
    }

    fn from_json(mut claims: Map<String, Value>) -> Result<(Self, UnixSeconds), InvalidToken> {
        if claims.remove("iss").as_ref().and_then(Value::as_str) != Some(ISSUER) {
            return Err(InvalidToken::Issuer);
        }
        let Some(Value::String(audience)) = claims.remove("aud") else { return Err(InvalidToken::Audience) };
        let mut moment = |name: &str| {
            let moment = claims.remove(name).as_ref().and_then(Value::as_i64);
            moment.map(UnixSeconds).ok_or(InvalidToken::Malformed)
        };
        let (issued_at, expires_at) = (moment("iat")?, moment("exp")?);
        let site_project = claims.remove("site_project");
        let site_project: Option<ProjectId> =
            site_project.map(serde_json::from_value).transpose().map_err(|_| InvalidToken::Malformed)?;
        let caller = match claims.remove("sub") {
            None => None,
            Some(key) => {
                claims.insert("key".to_owned(), key);
                Some(serde_json::from_value(Value::Object(claims)).map_err(|_| InvalidToken::Malformed)?)
            }
        };
        Ok((Self { audience, caller, site_project, issued_at }, expires_at))
    }
}

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// It does not have three parts of base64url, JSON in the first two, and `alg` = `EdDSA`.
    #[error("the token is malformed")]
    Malformed,
    /// Signed with a key outside of the set.
    #[error("the token is signed with an unknown key")]
    UnknownKey,
    /// The signature does not match the named key.
    #[error("the token's signature does not match")]
    Signature,
    /// The issuer is not a Tollhouse gateway.
    #[error("the token has another issuer")]
    Issuer,
    /// For another upstream.
    #[error("the token is for another upstream")]
    Audience,
    /// Expired, issued in the future, or valid for too long.
    #[error("the token is too old or from the future")]
    Age,
}

/// The bytes are not a private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a signing key has {SEED_BYTES} bytes")]
pub struct InvalidSeed;

/// The private key that signs tokens. It cannot be printed.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
    /// The token's first part with the dot after it, the same for all tokens.
    head: String,
}

#[derive(Serialize, Deserialize)]
struct Head {
    alg: String,
    kid: String,
    typ: String,
    /// Extensions that a reader must understand. None are supported.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    crit: Option<Value>,
}

/// Reads a member that is present, even `null`.
fn present<'de, D: serde::Deserializer<'de>>(member: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(member).map(Some)
}

impl SigningKey {
    /// Creates the key from the bytes of the private key.
    ///
    /// # Errors
    /// If there are not exactly [`SEED_BYTES`] bytes.
    pub fn from_seed(seed: &[u8]) -> Result<Self, InvalidSeed> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| InvalidSeed)?;
        let public = PublicKey::new(pair.public_key().as_ref()).ok_or(InvalidSeed)?;
        let head = Head { alg: "EdDSA".to_owned(), kid: public.kid.clone(), typ: "JWT".to_owned(), crit: None };
        let mut encoded = encode(&head);
        encoded.push('.');
        Ok(Self { pair, public, head: encoded })
    }

    /// The public key that verifies its signatures.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs `claims`.
    pub fn sign(&self, claims: &Claims) -> String {
        let mut token = self.head.clone();
        token.push_str(&encode(&claims.to_json()));
        let signature = self.pair.sign(token.as_bytes());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        token
    }
}

/// The key id in a token's header. Trust it only after the token was verified.
pub fn kid_of(token: &str) -> Option<String> {
    let (head, _) = token.split_once('.')?;
    decode_head(head).ok().map(|head| head.kid)
}

fn decode_head(text: &str) -> Result<Head, InvalidToken> {
    let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidToken::Malformed)?;
    serde_json::from_slice(&json).map_err(|_| InvalidToken::Malformed)
}

/// Serialises our own types, which cannot fail, in base64url.
fn encode(value: &impl Serialize) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(value).unwrap_or_default())
}

/// A public key as a JSON Web Key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicKey {
    /// "OKP".
    pub kty: String,
    /// "Ed25519".
    pub crv: String,
    /// The key, 32 bytes in base64url.
    pub x: String,
    /// The key's thumbprint (RFC 7638), which tokens name.
    #[serde(default)]
    pub kid: String,
    /// "`EdDSA`".
    #[serde(default)]
    pub alg: String,
    /// "sig".
    #[serde(default, rename = "use")]
    pub usage: String,
}

impl PublicKey {
    fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != PUBLIC_KEY_BYTES {
            return None;
        }
        let x = URL_SAFE_NO_PAD.encode(bytes);
        let canonical = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
        let kid = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, canonical.as_bytes()));
        let text = str::to_owned;
        Some(Self { kty: text("OKP"), crv: text("Ed25519"), x, kid, alg: text("EdDSA"), usage: text("sig") })
    }

    /// The same key with its correct id; `None` for a key of another kind.
    fn checked(&self) -> Option<Self> {
        let is_ours = self.kty == "OKP" && self.crv == "Ed25519";
        let bytes = URL_SAFE_NO_PAD.decode(&self.x).ok().filter(|_| is_ours)?;
        Self::new(&bytes)
    }
}

/// The trusted keys: a JWK set. Keys of other kinds are skipped when one is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RawKeySet")]
pub struct KeySet {
    keys: Vec<PublicKey>,
}

#[derive(Deserialize)]
struct RawKeySet {
    keys: Vec<Value>,
}

impl From<RawKeySet> for KeySet {
    fn from(raw: RawKeySet) -> Self {
        let keys = raw.keys.into_iter().take(KEYS_MAX).filter_map(|key| serde_json::from_value(key).ok());
        Self { keys: keys.filter_map(|key: PublicKey| key.checked()).collect() }
    }
}

impl FromIterator<PublicKey> for KeySet {
    fn from_iter<I: IntoIterator<Item = PublicKey>>(keys: I) -> Self {
        let mut set = Self::default();
        for key in keys {
            if !set.keys.contains(&key) && set.keys.len() < KEYS_MAX {
                set.keys.push(key);
            }
        }
        set
    }
}

impl KeySet {
    /// The keys.
    pub fn keys(&self) -> &[PublicKey] {
        &self.keys
    }

    /// The set as JSON, for publication.
    pub fn to_json(&self) -> String {
        // Writing text into memory cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether the set has the key with this id.
    pub fn has(&self, kid: &str) -> bool {
        self.keys.iter().any(|key| key.kid == kid)
    }

    /// Whether the set still has the key that signed a verified token.
    pub fn has_key_of(&self, token: &str) -> bool {
        kid_of(token).is_some_and(|kid| self.has(&kid))
    }

    /// Verifies a token: it must be for one of `audiences` and recently signed with a key of this set.
    ///
    /// # Errors
    /// [`InvalidToken`].
    pub fn verify(&self, token: &str, audiences: &[&str], now: UnixSeconds) -> Result<Claims, InvalidToken> {
        let malformed = InvalidToken::Malformed;
        if token.len() > TOKEN_BYTES_MAX {
            return Err(malformed);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(malformed)?;
        let (head, claims) = signed.split_once('.').ok_or(malformed)?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| malformed);
        let head = decode_head(head)?;
        if head.alg != "EdDSA" || head.crit.is_some() {
            return Err(malformed);
        }
        let key = self.keys.iter().find(|key| key.kid == head.kid).ok_or(InvalidToken::UnknownKey)?;
        UnparsedPublicKey::new(&ED25519, decode(&key.x)?)
            .verify(signed.as_bytes(), &decode(signature)?)
            .map_err(|_| InvalidToken::Signature)?;
        let claims = serde_json::from_slice(&decode(claims)?).map_err(|_| malformed)?;
        let (claims, expires_at) = Claims::from_json(claims)?;
        if !audiences.contains(&claims.audience.as_str()) {
            return Err(InvalidToken::Audience);
        }
        let is_dated_well = now.0 < expires_at.0 && expires_at <= claims.issued_at.plus(TOKEN_AGE_MAX_SECONDS);
        if is_dated_well && claims.is_fresh(now) { Ok(claims) } else { Err(InvalidToken::Age) }
    }
}

#[cfg(test)]
mod tests;
