//! Certificates of the listeners between processes, one for each gateway and service: `tls/NAME.pem` and
//! `tls/NAME.key`.
//!
//! Their authority, `ca/internal.pem`, issues no other certificates. Its key could impersonate the control plane, so no
//! process gets it. A certificate names its process, and the host of that process. A host on loopback, or a host of two
//! processes, does not identify a process, so no certificate names it.
//!
//! `tollhouse init` renews a certificate when a third of its lifetime is left, when its names are
//! wrong, and when it is not of the current authority.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chassis::certificate::certified_key;
use chassis::peer::CERTIFICATES_BYTES_MAX;
use chassis::secret::{read_regular, write_private};
use contract::time::UnixSeconds;
use contract::trust::{CONTROL_PLANE, ORDERS_SERVICE};
use rcgen::{Issuer, KeyPair, SanType};
use serde::Serialize;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::parse_x509_pem;

use super::{LEAF_DAYS, ensure_root, issuer, make_leaf, write_public};
use crate::directory::{Address, Directory, GATEWAY_NAMES, INTERNAL_AUTHORITY, RunFile};

/// A process and its certificate from its files.
#[derive(Debug, Serialize)]
pub(crate) struct InternalCertificate {
    /// Name of the process.
    pub(crate) name: String,
    /// Names in the certificate; empty if it cannot be read.
    pub(crate) names: Vec<String>,
    ends_at: Option<i64>,
    /// The reason to replace it.
    pub(crate) fault: Option<String>,
    #[serde(skip)]
    wanted: Vec<String>,
    #[serde(skip)]
    files: [PathBuf; 2],
}

/// Creates a missing authority, and each certificate that has a fault.
///
/// # Errors
/// If a file cannot be read or written, or the authority is damaged.
pub(crate) fn ensure(directory: &Directory, run: &RunFile, now: UnixSeconds) -> anyhow::Result<()> {
    let (root, key) = authority(directory);
    ensure_root([&root, &key], "Tollhouse internal authority", now)?;
    replace(directory, run, now, |certificate| certificate.fault.is_some())
}

/// Replaces the certificates of these processes, with new keys.
///
/// # Errors
/// Like [`ensure`].
pub(crate) fn replace(
    directory: &Directory,
    run: &RunFile,
    now: UnixSeconds,
    which: impl Fn(&InternalCertificate) -> bool,
) -> anyhow::Result<()> {
    let (root, key) = authority(directory);
    let issuer = issuer(&root, &key)?;
    list(directory, run, now).iter().filter(|certificate| which(certificate)).try_for_each(|one| one.make(&issuer, now))
}

/// The certificates of all processes, by name.
pub(crate) fn list(directory: &Directory, run: &RunFile, now: UnixSeconds) -> Vec<InternalCertificate> {
    let authority = read_regular(&authority(directory).0, CERTIFICATES_BYTES_MAX).ok();
    let authority = authority.and_then(|(pem, _)| read(&pem)).and_then(|root| root.key_id);
    let nodes = nodes(run);
    let looked = nodes
        .keys()
        .map(|name| InternalCertificate::look(directory, name, wanted(&nodes, name), authority.as_deref(), now));
    looked.collect()
}

fn authority(directory: &Directory) -> (PathBuf, PathBuf) {
    (directory.path(INTERNAL_AUTHORITY), directory.path("ca/internal.key"))
}

/// The processes and their hosts; the default host is the process's name.
fn nodes(run: &RunFile) -> BTreeMap<&str, Option<&Address>> {
    let gateways = run.gateways.iter().map(|gateway| (gateway.gateway.as_str(), Some(&gateway.admin)));
    let services = [(CONTROL_PLANE, Some(&run.control)), (ORDERS_SERVICE, Some(&run.orders))];
    GATEWAY_NAMES.into_iter().map(|name| (name, None)).chain(gateways).chain(services).collect()
}

/// The names in the certificate of a process.
fn wanted(nodes: &BTreeMap<&str, Option<&Address>>, name: &str) -> Vec<String> {
    let mut names = vec![name.to_owned()];
    if let Some(address) = nodes.get(name).copied().flatten() {
        let host = address.host();
        let mut others = nodes.iter().filter(|(other, _)| **other != name);
        let is_anothers = others.any(|(other, at)| *other == host || at.is_some_and(|at| at.host() == host));
        if host != name && !is_anothers && !address.is_loopback() {
            names.push(host.to_owned());
        }
    }
    names
}

impl InternalCertificate {
    fn look(
        directory: &Directory,
        name: &str,
        wanted: Vec<String>,
        authority: Option<&[u8]>,
        now: UnixSeconds,
    ) -> Self {
        let files = ["pem", "key"].map(|kind| directory.path(&format!("tls/{name}.{kind}")));
        let found = read_pair(&files);
        let fault = match &found {
            Err(error) => Some(format!("{error:#}")),
            Ok(found) => found.fault(&wanted, authority, now),
        };
        let (names, ends_at) = found.map_or((Vec::new(), None), |found| (found.names, Some(found.validity.1)));
        Self { name: name.to_owned(), names, ends_at, fault, wanted, files }
    }

    fn make(&self, issuer: &Issuer<'_, KeyPair>, now: UnixSeconds) -> anyhow::Result<()> {
        let names = self.wanted.iter().map(|name| match name.parse() {
            Ok(address) => Ok(SanType::IpAddress(address)),
            Err(_) => Ok(SanType::DnsName(name.as_str().try_into()?)),
        });
        let names = names.collect::<anyhow::Result<_>>()?;
        let (certificate, key) = make_leaf(issuer, &self.name, names, now, LEAF_DAYS)?;
        let [certificate_file, key_file] = &self.files;
        // The key first: processes read it when the certificate has changed.
        write_private(key_file, key.as_bytes())?;
        write_public(certificate_file, &certificate)
    }
}

/// The checked fields of a certificate.
pub(super) struct Found {
    pub(super) names: Vec<String>,
    /// First and last second of validity.
    pub(super) validity: (i64, i64),
    /// Authority key identifier.
    of: Option<Vec<u8>>,
    /// Subject key identifier.
    key_id: Option<Vec<u8>>,
}

impl Found {
    /// Whether the key of this authority's certificate has signed it.
    pub(super) fn is_issued_by(&self, authority: &Self) -> bool {
        self.of.is_some() && self.of == authority.key_id
    }

    fn fault(&self, wanted: &[String], authority: Option<&[u8]>, now: UnixSeconds) -> Option<String> {
        let (begins, ends) = self.validity;
        if self.names != wanted {
            return Some(format!("its names should be exactly {}", wanted.join(" and ")));
        }
        if self.of.is_none() || self.of.as_deref() != authority {
            return Some(format!("it was not issued by {INTERNAL_AUTHORITY}"));
        }
        ((ends - now.0).saturating_mul(3) < ends - begins).then(|| "it expires soon".to_owned())
    }
}

/// Reads the certificate in these two files and checks that the key matches.
pub(super) fn read_pair([certificate, key]: &[PathBuf; 2]) -> anyhow::Result<Found> {
    let load = |file: &Path| {
        let read = read_regular(file, CERTIFICATES_BYTES_MAX).with_context(|| format!("reading {}", file.display()));
        read.map(|(bytes, _)| bytes)
    };
    let (certificate, key) = (load(certificate)?, load(key)?);
    certified_key(&certificate, &key)?;
    read(&certificate).context("the certificate does not parse")
}

fn read(pem: &[u8]) -> Option<Found> {
    let (_, pem) = parse_x509_pem(pem).ok()?;
    let parsed = pem.parse_x509().ok()?;
    let validity = (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp());
    let mut found = Found { names: Vec::new(), validity, of: None, key_id: None };
    for extension in parsed.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(names) => {
                found.names = names.general_names.iter().map(text).collect();
            }
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                found.of = id.key_identifier.as_ref().map(|id| id.0.to_vec());
            }
            ParsedExtension::SubjectKeyIdentifier(id) => found.key_id = Some(id.0.to_vec()),
            _ => {}
        }
    }
    Some(found)
}

fn text(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.map_or_else(|_| format!("{bytes:?}"), |address| address.to_string())
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixSeconds = UnixSeconds(1_800_000_000);
    const DAY: i64 = 86_400;

    fn run(gateway: &str, control: &str, orders: &str) -> RunFile {
        let text = serde_json::json!({
            "platform_domain": "tollhouse.localhost", "http": "a:80", "https": "a:443", "tls": "off_loopback",
            "gateways": [{ "gateway": "gateway-1", "admin": gateway }], "control": control, "orders": orders,
        });
        serde_json::from_value(text).unwrap()
    }

    fn names(run: &RunFile, name: &str) -> Vec<String> {
        wanted(&nodes(run), name)
    }

    #[test]
    fn a_certificate_names_its_process_and_the_host_of_only_that_process() {
        let far = run("edge-1.internal:9901", "10.0.0.7:7003", "orders-service:7004");
        assert_eq!(names(&far, "gateway-1"), ["gateway-1", "edge-1.internal"]);
        assert_eq!(names(&far, "gateway-2"), ["gateway-2"]);
        assert_eq!(names(&far, "domains-service"), ["domains-service", "10.0.0.7"]);
        assert_eq!(names(&far, "orders-service"), ["orders-service"]);
        // A host of two processes, a host with another process's name, and loopback.
        let near = run("gateway-2:9901", "10.0.0.7:7003", "10.0.0.7:7004");
        for name in ["gateway-1", "domains-service", "orders-service"] {
            assert_eq!(names(&near, name), [name]);
        }
        let here = run("localhost:9901", "127.0.0.1:7003", "[::1]:7004");
        for name in ["gateway-1", "domains-service", "orders-service"] {
            assert_eq!(names(&here, name), [name]);
        }
    }

    /// The certificates that a start renews.
    fn renewed(directory: &Directory, run: &RunFile, now: UnixSeconds) -> Vec<String> {
        let files = || -> BTreeMap<String, Vec<u8>> {
            let read = |one: InternalCertificate| (one.name, std::fs::read(&one.files[0]).unwrap());
            list(directory, run, now).into_iter().map(read).collect()
        };
        let before = files();
        ensure(directory, run, now).unwrap();
        assert!(list(directory, run, now).iter().all(|one| one.fault.is_none()));
        files().into_iter().filter(|(name, pem)| before[name] != *pem).map(|(name, _)| name).collect()
    }

    #[test]
    fn a_start_renews_expiring_and_faulty_certificates() {
        let place = tempfile::tempdir().unwrap();
        let (directory, first) = (Directory::new(place.path()), run("gateway-1:9901", "10.0.0.7:7003", "orders:7004"));
        ensure(&directory, &first, NOW).unwrap();
        assert!(renewed(&directory, &first, NOW).is_empty());
        let all = ["domains-service", "gateway-1", "gateway-2", "gateway-more", "orders-service"];
        // Just before and just after a third of 397 days and an hour is left.
        let two_thirds = UnixSeconds(NOW.0 + 397 * DAY - (397 * DAY + 3_600) / 3);
        assert!(renewed(&directory, &first, two_thirds).is_empty());
        let now = UnixSeconds(two_thirds.0 + 1);
        assert_eq!(renewed(&directory, &first, now), all);
        let moved = run("gateway-1:9901", "10.0.0.8:7003", "orders:7004");
        assert_eq!(renewed(&directory, &moved, now), ["domains-service"]);
        // The key is wrong or missing.
        let key = |name: &str| directory.path(&format!("tls/{name}.key"));
        std::fs::copy(key("gateway-1"), key("gateway-2")).unwrap();
        std::fs::remove_file(key("orders-service")).unwrap();
        assert_eq!(renewed(&directory, &moved, now), ["gateway-2", "orders-service"]);
        std::fs::remove_file(directory.path("ca/internal.key")).unwrap();
        assert_eq!(renewed(&directory, &moved, now), all);
        replace(&directory, &moved, now, |one| one.name == "gateway-1").unwrap();
        assert!(list(&directory, &moved, now).iter().all(|one| one.fault.is_none()));
    }

    #[test]
    fn a_pipe_or_a_broken_link_is_a_fault_and_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let (directory, run) = (Directory::new(place.path()), run("gateway-1:9901", "a:7003", "b:7004"));
        ensure(&directory, &run, NOW).unwrap();
        for kind in ["pem", "key"] {
            let file = directory.path(&format!("tls/gateway-1.{kind}"));
            for target in ["", "/dev/zero", "nothing/here"] {
                std::fs::remove_file(&file).unwrap();
                if target.is_empty() {
                    assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
                } else {
                    std::os::unix::fs::symlink(target, &file).unwrap();
                }
                let fault =
                    |run| list(&directory, run, NOW).into_iter().find(|one| one.name == "gateway-1").unwrap().fault;
                assert!(fault(&run).is_some(), "{kind} {target}");
                replace(&directory, &run, NOW, |one| one.name == "gateway-1").unwrap();
                assert_eq!(fault(&run), None, "{kind} {target}");
            }
        }
    }
}
