//! Certificates as the control plane sends them to the edge.

use serde::{Deserialize, Serialize};

use crate::hostname::Hostname;
use crate::time::UnixSeconds;

/// A private key sealed with the platform's key-encryption key (AES-256-GCM; `chassis::seal`), in base64. The seal's
/// additional data is the hostname, so that a key moved to another name cannot be decrypted.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SealedKey(pub String);

impl std::fmt::Debug for SealedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealedKey(…)")
    }
}

/// Chain and sealed key for one hostname.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateBundle {
    /// The hostname; the leaf must cover it.
    pub hostname: Hostname,
    /// Leaf first, then intermediates, PEM.
    pub chain_pem: String,
    /// The leaf's private key.
    pub key: SealedKey,
    /// First second of validity.
    pub not_before: UnixSeconds,
    /// Last second of validity.
    pub not_after: UnixSeconds,
}

/// A proof that a certificate authority will request. It answers both HTTP-01 (the text under the token's path) and
/// TLS-ALPN-01 (its SHA-256 in a certificate for the hostname).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Challenge {
    /// The name to prove.
    pub hostname: Hostname,
    /// The token, `A-Z a-z 0-9 - _` (RFC 8555 section 8).
    pub token: String,
    /// The text that the authority expects.
    pub key_authorization: String,
}

impl Challenge {
    /// Whether `token` uses the alphabet of RFC 8555 and has 1 to 128 bytes.
    pub fn is_token(token: &str) -> bool {
        (1..=128).contains(&token.len())
            && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    }
}
