//! The configuration of one certificate authority.

use chassis::secret::Secret;
use instant_acme::ChallengeType;

use crate::limits::Limits;

/// One authority.
#[derive(Clone, Debug)]
pub struct AcmeSettings {
    /// Its name in the API, in logs, and for what is remembered of it.
    pub name: String,
    /// Its directory (RFC 8555, section 7.1.1).
    pub directory_url: String,
    /// Whom it may write to, such as `mailto:operator@example.com`.
    pub contact: Vec<String>,
    /// The one authority its own TLS is trusted by, PEM; `None`: those of the system.
    pub ca_certificate: Option<Vec<u8>>,
    /// How CAA records name it, such as `letsencrypt.org`.
    pub caa_identity: String,
    /// The account we have with it outside of ACME (RFC 8555, section 7.3.4).
    pub external_account: Option<ExternalAccount>,
    /// The ways of proof, the preferred one first. An attempt that fails is followed by one another way.
    pub challenges: Vec<ChallengeKind>,
    /// The profile of its certificates, if it has several.
    pub profile: Option<String>,
    /// Whether we keep count of what it lets us do. A private authority has no limits to mirror.
    pub mirror_limits: bool,
    /// What it lets us do.
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
    /// A way of proof that any gateway can give.
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
