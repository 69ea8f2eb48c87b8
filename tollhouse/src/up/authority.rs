//! The local certificate authority, created at the first start. Clients trust it only if a person installs its
//! certificate.
//!
//! `ca/ca.pem` is the root (ten years), `ca/platform.pem` the wildcard certificate of the platform's hosts. The
//! wildcard is renewed a month before its expiry, for another platform domain, and if its key is another one: at each
//! start, and while the platform runs. The listeners between processes have another authority: [`internal`].

pub(crate) mod internal;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chassis::clock::Clock;
use chassis::durable::sync_names;
use chassis::peer::CERTIFICATES_BYTES_MAX;
use chassis::secret::{read_regular, write_private};
use chassis::shutdown::Shutdown;
use contract::hostname::Hostname;
use contract::time::UnixSeconds;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

use crate::directory::Directory;

const DAY: i64 = 86_400;
const ROOT_DAYS: i64 = 3_650;
/// The longest lifetime of a leaf that browsers accept.
const LEAF_DAYS: i64 = 397;
const RENEW_DAYS_BEFORE: i64 = 30;

/// Interval of checks of the wildcard certificate: a check reads four files, and a machine that slept for weeks soon
/// has a valid one.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_mins(1);

/// Creates missing certificates and renews expiring ones.
///
/// # Errors
/// If a file cannot be read or written, or is damaged.
pub(crate) fn ensure(directory: &Directory, platform_domain: &Hostname, now: UnixSeconds) -> anyhow::Result<()> {
    let root_path = directory.path("ca/ca.pem");
    let root_key_path = directory.path("ca/ca.key");
    ensure_root([&root_path, &root_key_path], "Tollhouse local authority", now)?;
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

/// Renews the wildcard when it is time, until `end`. The gateway takes the new one.
pub(crate) async fn keep(
    directory: Directory,
    platform_domain: Hostname,
    clock: Arc<dyn Clock>,
    every: Duration,
    end: Shutdown,
) {
    let mut failed = false;
    loop {
        end.pause(every).await;
        if end.has_begun() {
            return;
        }
        let renewed = ensure(&directory, &platform_domain, clock.now_seconds());
        if let (Err(error), false) = (&renewed, failed) {
            tracing::error!(
                error = format!("{error:#}"),
                directory = %directory.path("ca").display(),
                "cannot renew the platform's certificate; retrying every minute. Fix the cause given in `error`"
            );
        }
        failed = renewed.is_err();
    }
}

/// Makes a root if its certificate or its key is missing. No certificate of an earlier root lies beside the new key
/// meanwhile, so after a power failure the next start makes both again.
fn ensure_root([certificate, key]: [&Path; 2], common_name: &str, now: UnixSeconds) -> anyhow::Result<()> {
    if certificate.exists() && key.exists() {
        return Ok(());
    }
    let (pem, secret) = make_root(common_name, now)?;
    if certificate.exists() {
        let place = || format!("removing {}", certificate.display());
        std::fs::remove_file(certificate).with_context(place)?;
        sync_names(certificate.parent().unwrap_or(Path::new("."))).with_context(place)?;
    }
    write_private(key, secret.as_bytes())?;
    write_public(certificate, &pem)
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

/// Whether it covers the domain for longer than a month, the root has issued it, and its key is the one in its file: a
/// power failure may have left the certificate of one and the key of another.
fn leaf_is_good(directory: &Directory, platform_domain: &Hostname, now: UnixSeconds) -> bool {
    let pair =
        |name: &str| internal::read_pair(&["pem", "key"].map(|kind| directory.path(&format!("ca/{name}.{kind}"))));
    let (Ok(root), Ok(leaf)) = (pair("ca"), pair("platform")) else { return false };
    let covers = leaf.names.contains(&format!("*.{platform_domain}"));
    covers && leaf.is_issued_by(&root) && leaf.validity.1 > now.0 + RENEW_DAYS_BEFORE * DAY
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

#[cfg(test)]
mod tests {
    use chassis::clock::ManualClock;

    use super::*;

    const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

    fn platform() -> (tempfile::TempDir, Directory, Hostname) {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::new(place.path());
        let domain: Hostname = "apps.localhost".parse().unwrap();
        ensure(&directory, &domain, NOW).unwrap();
        (place, directory, domain)
    }

    fn read(directory: &Directory, file: &str) -> Vec<u8> {
        std::fs::read(directory.path(file)).unwrap()
    }

    #[test]
    fn a_start_after_a_power_failure_between_key_and_certificate_makes_a_pair() {
        let (_place, directory, domain) = platform();
        // A renewal writes the key first; the certificate is still good.
        let before = read(&directory, "ca/platform.pem");
        write_private(&directory.path("ca/platform.key"), KeyPair::generate().unwrap().serialize_pem().as_bytes())
            .unwrap();
        ensure(&directory, &domain, NOW).unwrap();
        let renewed = read(&directory, "ca/platform.pem");
        assert_ne!(renewed, before);
        assert!(chassis::certificate::certified_key(&renewed, &read(&directory, "ca/platform.key")).is_ok());
        ensure(&directory, &domain, NOW).unwrap();
        assert_eq!(read(&directory, "ca/platform.pem"), renewed, "a good pair stays");
    }

    #[test]
    fn a_root_whose_key_is_lost_is_replaced_as_a_whole() {
        let (_place, directory, domain) = platform();
        let (before, leaf) = (read(&directory, "ca/ca.pem"), read(&directory, "ca/platform.pem"));
        std::fs::remove_file(directory.path("ca/ca.key")).unwrap();
        // The power fails before the key is written: no certificate may be there without its key.
        let certificate = directory.path("ca/ca.pem");
        ensure_root([&certificate, &directory.path("ca/platform.key/unwritable")], "root", NOW).unwrap_err();
        assert!(!certificate.exists());
        ensure(&directory, &domain, NOW).unwrap();
        let renewed = read(&directory, "ca/ca.pem");
        assert_ne!(renewed, before);
        assert!(chassis::certificate::certified_key(&renewed, &read(&directory, "ca/ca.key")).is_ok());
        let renewed = read(&directory, "ca/platform.pem");
        assert_ne!(renewed, leaf, "clients that trust the new root would refuse it");
        ensure(&directory, &domain, NOW).unwrap();
        assert_eq!(read(&directory, "ca/platform.pem"), renewed, "a good one stays");
    }

    #[tokio::test]
    async fn the_wildcard_is_renewed_while_the_platform_runs() {
        let (_place, directory, domain) = platform();
        let (clock, end) = (Arc::new(ManualClock::at(NOW.to_millis())), Shutdown::new());
        let before = read(&directory, "ca/platform.pem");
        let kept = keep(directory.clone(), domain, clock.clone(), Duration::from_millis(1), end.clone());
        let kept = tokio::spawn(kept);
        clock.advance(Duration::from_hours(24 * (397 - 29)));
        let renewed = async {
            while read(&directory, "ca/platform.pem") == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), renewed).await.expect("it is never renewed");
        end.begin();
        kept.await.unwrap();
        let pair = internal::read_pair(&["pem", "key"].map(|kind| directory.path(&format!("ca/platform.{kind}"))));
        assert!(pair.unwrap().validity.1 > NOW.0 + (2 * 397 - 31) * DAY);
    }
}
