//! The configuration of one certificate authority.

use chassis::secret::Secret;
use instant_acme::ChallengeType;

use crate::limits::Limits;

/// One authority.
#[derive(Clone, Debug)]
pub struct AcmeSettings {
    /// Its name in the API, in logs and in stored data.
    pub name: String,
    /// Its directory (RFC 8555, section 7.1.1).
    pub directory_url: String,
    /// Contact addresses for the authority, such as `mailto:operator@example.com`.
    pub contact: Vec<String>,
    /// The only CA that its TLS certificate is verified with, PEM; `None`: those of the system.
    pub ca_certificate: Option<Vec<u8>>,
    /// Its name in CAA records, such as `letsencrypt.org`.
    pub caa_identity: String,
    /// The account we have with it outside of ACME (RFC 8555, section 7.3.4).
    pub external_account: Option<ExternalAccount>,
    /// The ways of proof, the preferred one first. An attempt that fails is followed by one another way.
    pub challenges: Vec<ChallengeKind>,
    /// The profile of its certificates, if it has several.
    pub profile: Option<String>,
    /// Whether this service counts its limits. A private authority has none.
    pub mirror_limits: bool,
    /// Its limits.
    pub limits: Limits,
}

/// An account outside of ACME.
#[derive(Clone, Debug)]
pub struct ExternalAccount {
    /// Its name.
    pub key_id: String,
    /// Its key, decoded.
    pub hmac_key: Secret,
}

contract::words! {
    /// A challenge that every gateway can answer.
    pub enum ChallengeKind {
        /// A text under a path, on port 80 (RFC 8555, section 8.3).
        Http01 = "http-01",
        /// A certificate in a handshake, on port 443 (RFC 8737).
        TlsAlpn01 = "tls-alpn-01",
    }
}

impl ChallengeKind {
    pub(crate) const fn acme(self) -> ChallengeType {
        match self {
            Self::Http01 => ChallengeType::Http01,
            Self::TlsAlpn01 => ChallengeType::TlsAlpn01,
        }
    }
}
