//! The local certificate authority, created at the first start. Clients trust it only if a person installs its
//! certificate.
//!
//! `ca/ca.pem` is the root (ten years), `ca/platform.pem` the wildcard certificate of the platform's hosts. The
//! wildcard is renewed a month before its expiry and for another platform domain. The listeners between processes have
//! another authority: [`internal`].

pub(crate) mod internal;

use std::path::Path;

use anyhow::Context as _;
use chassis::peer::CERTIFICATES_BYTES_MAX;
use chassis::secret::{read_regular, write_private};
use contract::hostname::Hostname;
use contract::time::UnixSeconds;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use x509_parser::extensions::GeneralName;
use x509_parser::pem::parse_x509_pem;

use crate::directory::Directory;

const DAY: i64 = 86_400;
const ROOT_DAYS: i64 = 3_650;
/// The longest lifetime of a leaf that browsers accept.
const LEAF_DAYS: i64 = 397;
const RENEW_DAYS_BEFORE: i64 = 30;

/// Creates missing certificates and renews expiring ones.
///
/// # Errors
/// If a file cannot be read or written, or is damaged.
pub(crate) fn ensure(directory: &Directory, platform_domain: &Hostname, now: UnixSeconds) -> anyhow::Result<()> {
    let root_path = directory.path("ca/ca.pem");
    let root_key_path = directory.path("ca/ca.key");
    if !root_path.exists() || !root_key_path.exists() {
        let (certificate, key) = make_root("Tollhouse local authority", now)?;
        write_private(&root_key_path, key.as_bytes())?;
        write_public(&root_path, &certificate)?;
    }
    if leaf_is_good(directory, platform_domain, now) {
        return Ok(());
    }
    let names = vec![
        SanType::DnsName(format!("*.{platform_domain}").try_into()?),
        SanType::DnsName(platform_domain.as_str().try_into()?),
    ];
    let issuer = issuer(&root_path, &root_key_path)?;
    let (certificate, key) = make_leaf(&issuer, "Tollhouse platform", names, now, LEAF_DAYS)?;
    write_private(&directory.path("ca/platform.key"), key.as_bytes())?;
    write_public(&directory.path("ca/platform.pem"), &certificate)
}

fn issuer(root: &Path, key: &Path) -> anyhow::Result<Issuer<'static, KeyPair>> {
    let read = |path: &Path| {
        let place = || format!("reading {}", path.display());
        let (bytes, _) = read_regular(path, CERTIFICATES_BYTES_MAX).with_context(place)?;
        std::str::from_utf8(&bytes).map(str::to_owned).with_context(place)
    };
    let key = KeyPair::from_pem(&read(key)?)?;
    domains_service::signing(&read(root)?, key).with_context(|| format!("the authority {} is damaged", root.display()))
}

fn leaf_is_good(directory: &Directory, platform_domain: &Hostname, now: UnixSeconds) -> bool {
    let file = directory.path("ca/platform.pem");
    let Ok((text, _)) = read_regular(&file, CERTIFICATES_BYTES_MAX) else { return false };
    let Ok((_, pem)) = parse_x509_pem(&text) else { return false };
    let Ok(leaf) = pem.parse_x509() else { return false };
    let wildcard = format!("*.{platform_domain}");
    let names = leaf.subject_alternative_name().ok().flatten();
    names.is_some_and(|names| names.value.general_names.contains(&GeneralName::DNSName(&wildcard)))
        && leaf.validity().not_after.timestamp() > now.0 + RENEW_DAYS_BEFORE * DAY
        && directory.path("ca/platform.key").exists()
}

fn make_root(common_name: &str, now: UnixSeconds) -> anyhow::Result<(String, String)> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = name(common_name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, now, ROOT_DAYS)?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

fn make_leaf(
    issuer: &Issuer<'_, KeyPair>,
    common_name: &str,
    names: Vec<SanType>,
    now: UnixSeconds,
    days: i64,
) -> anyhow::Result<(String, String)> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = name(common_name);
    params.subject_alt_names = names;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, now, days)?;
    Ok((params.signed_by(&key, issuer)?.pem(), key.serialize_pem()))
}

fn name(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

/// Valid from an hour ago, so that clients with a slow clock accept it.
fn set_validity(params: &mut CertificateParams, now: UnixSeconds, days: i64) -> anyhow::Result<()> {
    params.not_before = time::OffsetDateTime::from_unix_timestamp(now.0 - 3_600)?;
    params.not_after = time::OffsetDateTime::from_unix_timestamp(now.0 + days * DAY)?;
    Ok(())
}

/// Certificates are public, so every user may read them.
fn write_public(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    write_private(path, text.as_bytes())?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))?;
    Ok(())
}
