//! The settings of public certificate authorities.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use chassis::config::Section;
use chassis::peer::CERTIFICATES_BYTES_MAX;
use chassis::secret::{Secret, read_regular};
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

/// Every `[[authorities]]` table; `None` when a mistake was reported.
pub(super) fn read(root: &Section<'_>) -> Option<Vec<AcmeSettings>> {
    let sections = root.tables("authorities");
    // Each is read, so that all mistakes are reported together.
    let all: Vec<Option<AcmeSettings>> = sections.iter().map(one).collect();
    let all = all.into_iter().collect::<Option<Vec<_>>>()?;
    let mut names = HashSet::new();
    for (settings, section) in all.iter().zip(&sections) {
        if !names.insert(settings.name.clone()) {
            section.complain("name", "two authorities have this name: give each its own".to_owned());
            return None;
        }
    }
    Some(all)
}

fn one(section: &Section<'_>) -> Option<AcmeSettings> {
    let fits = |url: &String| url.starts_with("https://") || url.starts_with("http://127.0.0.1:");
    let directory = "\"https://acme-v02.api.letsencrypt.org/directory\"";
    chassis::settings!(AcmeSettings {
        name: section.required("name", "\"letsencrypt\""),
        directory_url: section.required("directory_url", directory).filter(|url| {
            if !fits(url) {
                section.complain("directory_url", "use an https:// address; http:// only at 127.0.0.1".to_owned());
            }
            fits(url)
        }),
        contact: section.list("contact"),
        ca_certificate: file(section, "ca_certificate_file"),
        caa_identity: section.required("caa_identity", "\"letsencrypt.org\""),
        external_account: external_account(section),
        challenges: section.list("challenges").map(|kinds| match kinds {
            none if none.is_empty() => ChallengeKind::ALL.to_vec(),
            kinds => kinds,
        }),
        profile: section.optional("profile"),
        mirror_limits: section.flag("mirror_limits", true),
        limits: limits(section),
    })
}

/// The authority's limits. Operators with higher limits configure them here.
fn limits(section: &Section<'_>) -> Option<Limits> {
    let default = Limits::default();
    chassis::settings!(Limits {
        orders: section.value("limit_orders", default.orders),
        project: section.value("limit_project", orders.unwrap_or(default.orders).share()),
        registered_domain: section.value("limit_registered_domain", default.registered_domain),
        exact_name: section.value("limit_exact_name", default.exact_name),
        failures: section.value("limit_failures", default.failures),
    })
}

/// The contents of a file, if one is named.
fn file(section: &Section<'_>, setting: &str) -> Option<Option<Vec<u8>>> {
    let Some(path) = section.path(setting)? else { return Some(None) };
    let read = read_regular(&path, CERTIFICATES_BYTES_MAX);
    let read = read.map_err(|error| section.complain(setting, format!("cannot read it: {error}")));
    read.ok().map(|(bytes, _)| Some(bytes.to_vec()))
}

fn external_account(section: &Section<'_>) -> Option<Option<ExternalAccount>> {
    let (key_id, bytes) = (section.optional::<String>("eab_key_id"), file(section, "eab_hmac_key_file"));
    match (key_id?, bytes?) {
        (None, None) => Some(None),
        (Some(key_id), Some(text)) => {
            let text = text.trim_ascii();
            let key =
                URL_SAFE_NO_PAD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok().filter(|key| !key.is_empty());
            if key.is_none() {
                section.complain("eab_hmac_key_file", "it holds no base64url key".to_owned());
            }
            Some(Some(ExternalAccount { key_id, hmac_key: Secret::new(key?) }))
        }
        (Some(_), None) => {
            section.missing("eab_hmac_key_file", "\"data/secrets/eab.key\"");
            None
        }
        (None, Some(_)) => {
            section.missing("eab_key_id", "\"the name your authority gave you\"");
            None
        }
    }
}
