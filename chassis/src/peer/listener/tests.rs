use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use time::OffsetDateTime;

use super::*;
use crate::secret::write_private;

const NOW: UnixSeconds = UnixSeconds(1_800_000_000);
const DAY: i64 = 86_400;

/// An authority. All have the same name.
fn authority() -> Issuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Issuer::new(params, KeyPair::generate().unwrap())
}

/// The contents of a certificate.
#[derive(Clone, Copy)]
struct Leaf<'a> {
    names: &'a [&'a str],
    /// Days from now.
    valid: (i64, i64),
}

const GOOD: Leaf<'static> = Leaf { names: &["gateway-1", "10.0.0.7"], valid: (-10, 100) };

impl Leaf<'_> {
    fn params(self) -> CertificateParams {
        let names: Vec<_> = self.names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        let at = |days: i64| OffsetDateTime::from_unix_timestamp(NOW.0 + days * DAY).unwrap();
        (params.not_before, params.not_after) = (at(self.valid.0), at(self.valid.1));
        params.use_authority_key_identifier_extension = true;
        params
    }

    fn of(self, issuer: &Issuer<'_, KeyPair>) -> (String, String) {
        signed(&self.params(), issuer)
    }
}

fn signed(params: &CertificateParams, issuer: &Issuer<'_, KeyPair>) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, issuer).unwrap().pem(), key.serialize_pem())
}

/// The files of a listener.
struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn paths(&self) -> [PathBuf; 2] {
        ["leaf.pem", "leaf.key"].map(|name| self.directory.path().join(name))
    }

    fn put(&self, (pem, secret): &(String, String)) {
        let [certificate, key] = self.paths();
        write_private(&key, secret.as_bytes()).unwrap();
        write_private(&certificate, pem.as_bytes()).unwrap();
    }

    fn load(&self) -> ServerTls {
        let [certificate, key] = self.paths();
        ServerTls::load(&certificate, &key).unwrap()
    }
}

/// The reason why the files were refused.
fn refused(tls: &ServerTls) -> Option<&'static str> {
    tls.files.faults.lock()[1].as_ref().map(FaultKind::reason)
}

#[test]
fn a_worse_pair_does_not_replace_the_certificate_in_use() {
    let (ours, another) = (authority(), authority());
    let leaf = |names, valid| Leaf { names, valid };
    let (names, all) = (GOOD.names, ["gateway-1", "10.0.0.7", "edge.internal"]);
    let clients = || {
        let mut params = Leaf { valid: (0, 200), ..GOOD }.params();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params
    };
    let authoritys = || {
        let mut params = Leaf { valid: (0, 200), ..GOOD }.params();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    };
    for (case, found, expected) in [
        ("renewed", leaf(names, (0, 200)).of(&ours), None),
        ("more names", leaf(&all, (0, 200)).of(&ours), None),
        ("made again on purpose, expiring earlier", leaf(names, (0, 50)).of(&ours), None),
        ("an older one that ends earlier", leaf(names, (-20, 50)).of(&ours), Some("ends_earlier")),
        ("expired", leaf(names, (-5, -1)).of(&ours), Some("expired")),
        ("not valid yet", leaf(names, (1, 200)).of(&ours), Some("not_yet_valid")),
        ("for another process", leaf(&["gateway-2", "10.0.0.7"], (0, 200)).of(&ours), Some("names")),
        ("without the address", leaf(&["gateway-1"], (0, 200)).of(&ours), Some("names")),
        ("of another authority", leaf(names, (0, 200)).of(&another), Some("authority")),
        ("a client's", signed(&clients(), &ours), Some("purpose")),
        ("an authority's", signed(&authoritys(), &ours), Some("ca")),
    ] {
        let files = Files::new();
        files.put(&GOOD.of(&ours));
        let tls = files.load();
        let good = tls.files.current.load().chain_pem.clone();
        assert!(!tls.files.check(NOW), "{case}: nothing is new");
        files.put(&found);
        assert_eq!(tls.files.check(NOW), expected.is_none(), "{case}");
        assert_eq!(refused(&tls), expected, "{case}");
        assert_eq!(tls.files.current.load().chain_pem == good, expected.is_some(), "{case}");
        let listeners = Listeners::of([&None, &Some(tls.clone())]);
        let found = listeners.faults(NOW);
        assert_eq!(found.len(), usize::from(expected.is_some()), "{case}: {found:?}");
        assert!(found.iter().all(|one| one.what_to_do.contains("tollhouse node certificates")), "{found:?}");
    }
}

#[test]
fn a_certificate_in_use_that_expires_within_30_days_is_reported() {
    let files = Files::new();
    files.put(&GOOD.of(&authority()));
    let listeners = Listeners::of([&Some(files.load())]);
    assert!(listeners.faults(NOW.plus(70 * DAY)).is_empty());
    let found = listeners.faults(NOW.plus(70 * DAY + 1));
    assert!(found[0].problem.ends_with("leaf.pem) expires at 2027-04-25T08:00:00Z"), "{found:?}");
}

#[test]
fn a_replaced_pair_may_return() {
    let (ours, files) = (authority(), Files::new());
    let (first, second) = (GOOD.of(&ours), Leaf { valid: (0, 200), ..GOOD }.of(&ours));
    files.put(&first);
    let tls = files.load();
    for (pair, ends) in [(&second, 200), (&first, 100), (&second, 200)] {
        files.put(pair);
        assert!(tls.files.check(NOW));
        assert_eq!(tls.files.current.load().not_after, NOW.plus(ends * DAY));
    }
    // An expired certificate may be replaced by one of another authority.
    let later = NOW.plus(300 * DAY);
    assert!(!tls.files.check(later));
    assert_eq!(tls.files.faults.lock()[0].as_ref().map(FaultKind::reason), Some("expired"));
    files.put(&Leaf { valid: (0, 400), ..GOOD }.of(&authority()));
    assert!(tls.files.check(later));
    assert_eq!(*tls.files.faults.lock(), Faults::default());
}

#[test]
fn files_that_cannot_be_used_leave_the_certificate_in_use() {
    let (ours, files) = (authority(), Files::new());
    let (first, second) = (GOOD.of(&ours), Leaf { valid: (0, 200), ..GOOD }.of(&ours));
    files.put(&first);
    let tls = files.load();
    let registry = metrics::registry("1").unwrap();
    ServerTls::show(&registry, [("admin", &Some(tls.clone()))]).unwrap();
    let [certificate, _] = files.paths();
    let is_refused = |case: &str| {
        assert!(!tls.files.check(NOW), "{case}");
        assert_eq!(refused(&tls), Some("unusable"), "{case}");
        assert_eq!(tls.files.current.load().chain_pem, first.0.as_bytes(), "{case}");
        let rendered = metrics::render(&registry).unwrap();
        let series = "listener_certificate_fault{certificate=\"refused\",listener=\"admin\",reason=\"unusable\"} 1";
        assert!(rendered.contains(series), "{case}: {rendered}");
    };
    for (case, pem) in [("empty", ""), ("no certificate", "no certificate"), ("another's key", &second.0)] {
        files.put(&(pem.to_owned(), first.1.clone()));
        is_refused(case);
    }
    std::fs::remove_file(&certificate).unwrap();
    is_refused("missing");
    assert!(std::process::Command::new("mkfifo").arg(&certificate).status().unwrap().success());
    is_refused("a pipe is not waited for");
    std::fs::remove_file(&certificate).unwrap();
    std::os::unix::fs::symlink(Path::new("/dev/zero"), &certificate).unwrap();
    is_refused("a device is not read for ever");
    std::fs::remove_file(&certificate).unwrap();
    files.put(&second);
    assert!(tls.files.check(NOW));
    assert_eq!(tls.files.current.load().chain_pem, second.0.as_bytes());
}
