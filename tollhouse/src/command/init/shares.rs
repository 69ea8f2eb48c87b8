//! Copies the secrets that each process of a deployment needs to a directory of that process,
//! so that an attacker in one process does not get the secrets of the others.
//!
//! The directories are meant as volumes. Files keep their names of the data directory. Redis and PostgreSQL find their
//! files directly in their directories, readable by every user, because they run as other users and only they mount the
//! volume. A copy is written only if it differs from its original, so that a process that watches a file sees only real
//! changes.

use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use aws_lc_rs::{digest, hmac, pbkdf2};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chassis::secret::write_private;

use crate::directory::{Directory, INTERNAL_AUTHORITY};

/// The files that each process needs. A key is copied before its certificate, because processes read it when the
/// certificate has changed. A gateway gets only its own credential and certificate.
const OURS: [(&str, &[&str]); 5] = [
    ("gateway-1", &gateway("secrets/gateways/gateway-1.key", "tls/gateway-1.key", "tls/gateway-1.pem")),
    ("gateway-2", &gateway("secrets/gateways/gateway-2.key", "tls/gateway-2.key", "tls/gateway-2.pem")),
    ("gateway-more", &gateway("secrets/gateways/gateway-more.key", "tls/gateway-more.key", "tls/gateway-more.pem")),
    (
        "orders-service",
        &["secrets/services/orders-service.key", "ca/internal.pem", "tls/orders-service.key", "tls/orders-service.pem"],
    ),
    (
        "domains-service",
        &[
            "secrets/platform.key",
            "secrets/gateways/gateway-1.key",
            "secrets/gateways/gateway-2.key",
            "secrets/gateways/gateway-more.key",
            "secrets/services/orders-service.key",
            "secrets/sealing.key",
            "ca/ca.pem",
            "ca/ca.key",
            "tls/domains-service.key",
            "tls/domains-service.pem",
        ],
    ),
];

const fn gateway(credential: &'static str, key: &'static str, certificate: &'static str) -> [&'static str; 8] {
    [
        credential,
        key,
        certificate,
        "secrets/sealing.key",
        "secrets/redis.password",
        "ca/platform.key",
        "ca/platform.pem",
        "ca/internal.pem",
    ]
}

/// A gateway's rights in Redis, the same as in config/redis.conf.
const REDIS_RIGHTS: &str = "~tollhouse:* &tollhouse:* -@all +evalsha +eval +script|load +info +time +hgetall +hset \
    +hdel +hget +hmget +hscan +del +pexpireat +pexpire +zadd +zcard +zremrangebyscore +publish +subscribe +unsubscribe +ping \
    +cluster|slots +asking +hello +auth";

/// Databases of the PostgreSQL server: the process, and the name of its database and user.
const DATABASES: [(&str, &str); 2] = [("orders-service", "orders"), ("domains-service", "domains")];

/// The address of that server.
const DATABASE_SERVER: &str = "postgres:5432";

/// Brings the directory of every process below `target` up to date.
pub(super) fn write(directory: &Directory, target: &Path) -> anyhow::Result<()> {
    for (process, files) in OURS {
        for file in files {
            let original = directory.path(file);
            let contents = std::fs::read(&original).with_context(|| format!("reading {}", original.display()))?;
            replace(&target.join(process).join(file), &contents, 0o600)?;
        }
    }
    let password = |name: &str| {
        let path = directory.path(name);
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    };
    let users = redis_users(password("secrets/redis.password")?.trim());
    replace(&target.join("redis/users.acl"), users.as_bytes(), 0o644)?;
    let mut roles = String::new();
    for (process, name) in DATABASES {
        let password = password(&format!("secrets/{name}-database.password"))?;
        let password = password.trim();
        let url = format!("postgres://{name}:{password}@{DATABASE_SERVER}/{name}");
        replace(&target.join(process).join("secrets/database.url"), url.as_bytes(), 0o600)?;
        roles.push_str(&database_role(name, &scram_verifier(password)?));
    }
    replace(&target.join("postgres/roles.sql"), roles.as_bytes(), 0o644)?;
    let password = password("secrets/grafana.password")?;
    replace(&target.join("grafana/admin.password"), password.as_bytes(), 0o644)?;
    let authority = directory.path(INTERNAL_AUTHORITY);
    let authority = std::fs::read(&authority).with_context(|| format!("reading {}", authority.display()))?;
    replace(&target.join("prometheus/internal.pem"), &authority, 0o644)
}

/// The users of Redis. It gets a digest of the password, which has 256 random bits. `health` may only PING. No client
/// can log in as the default user, but that user keeps all rights: Redis replays its log as that user when it starts,
/// and up to 2025 it skipped logged transactions without the right for them, including the ledger's scripts.
fn redis_users(password: &str) -> String {
    let digest = digest::digest(&digest::SHA256, password.as_bytes());
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "user default off resetpass ~* &* +@all\nuser health on nopass -@all +ping\nuser tollhouse on #{digest} {REDIS_RIGHTS}\n"
    )
}

/// The psql commands that create a database and its user if they are missing, run at every start.
fn database_role(name: &str, verifier: &str) -> String {
    format!(
        "SELECT 'CREATE ROLE {name} LOGIN' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{name}') \\gexec\n\
         ALTER ROLE {name} PASSWORD '{verifier}';\n\
         SELECT 'CREATE DATABASE {name} OWNER {name}' WHERE NOT EXISTS \
         (SELECT FROM pg_database WHERE datname = '{name}') \\gexec\n\
         REVOKE ALL ON DATABASE {name} FROM PUBLIC;\n"
    )
}

/// The SCRAM verifier of a password (RFC 5802, RFC 7677) for `ALTER ROLE`: the server can verify the
/// password but does not reveal it. The salt is derived from the password, so that the file changes only with it.
fn scram_verifier(password: &str) -> anyhow::Result<String> {
    const ROUNDS: NonZeroU32 = NonZeroU32::MIN.saturating_add(4_095);
    let sign = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
    let salt = sign(password.as_bytes(), b"salt of the database password");
    let salt = salt.as_ref().get(..16).context("a digest has 32 bytes")?;
    let mut salted = [0; 32];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, salt, password.as_bytes(), &mut salted);
    let stored = digest::digest(&digest::SHA256, sign(&salted, b"Client Key").as_ref());
    let server = sign(&salted, b"Server Key");
    let text = |bytes: &[u8]| STANDARD.encode(bytes);
    Ok(format!("SCRAM-SHA-256${ROUNDS}:{}${}:{}", text(salt), text(stored.as_ref()), text(server.as_ref())))
}

fn replace(path: &Path, contents: &[u8], mode: u32) -> anyhow::Result<()> {
    if std::fs::read(path).is_ok_and(|there| there == contents) {
        return Ok(());
    }
    write_private(path, contents)?;
    let place = || format!("setting the rights of {}", path.display());
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).with_context(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths below `directory` with their permissions, sorted.
    fn tree(directory: &Path) -> Vec<(String, u32)> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let name = entry.file_name().into_string().unwrap();
            if entry.file_type().unwrap().is_dir() {
                found.extend(tree(&entry.path()).into_iter().map(|(path, mode)| (format!("{name}/{path}"), mode)));
            } else {
                found.push((name, entry.metadata().unwrap().permissions().mode() & 0o777));
            }
        }
        found.sort();
        found
    }

    fn platform(path: &Path) -> Directory {
        let directory = Directory::new(path);
        let files = OURS.iter().flat_map(|(_, files)| files.iter());
        let others =
            ["secrets/grafana.password", "secrets/orders-database.password", "secrets/domains-database.password"];
        for file in files.chain(&others) {
            write_private(&directory.path(file), file.as_bytes()).unwrap();
        }
        directory
    }

    #[test]
    fn each_process_gets_exactly_the_secrets_it_needs() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("shares");
        write(&platform(&place.path().join("data")), &target).unwrap();
        let expected = [
            ("domains-service/ca/ca.key", 0o600),
            ("domains-service/ca/ca.pem", 0o600),
            ("domains-service/secrets/database.url", 0o600),
            ("domains-service/secrets/gateways/gateway-1.key", 0o600),
            ("domains-service/secrets/gateways/gateway-2.key", 0o600),
            ("domains-service/secrets/gateways/gateway-more.key", 0o600),
            ("domains-service/secrets/platform.key", 0o600),
            ("domains-service/secrets/sealing.key", 0o600),
            ("domains-service/secrets/services/orders-service.key", 0o600),
            ("domains-service/tls/domains-service.key", 0o600),
            ("domains-service/tls/domains-service.pem", 0o600),
            ("grafana/admin.password", 0o644),
            ("orders-service/ca/internal.pem", 0o600),
            ("orders-service/secrets/database.url", 0o600),
            ("orders-service/secrets/services/orders-service.key", 0o600),
            ("orders-service/tls/orders-service.key", 0o600),
            ("orders-service/tls/orders-service.pem", 0o600),
            ("postgres/roles.sql", 0o644),
            ("prometheus/internal.pem", 0o644),
            ("redis/users.acl", 0o644),
        ];
        let mut expected: Vec<_> = expected.iter().map(|(path, mode)| ((*path).to_owned(), *mode)).collect();
        for name in ["gateway-1", "gateway-2", "gateway-more"] {
            for file in [
                "ca/internal.pem",
                "ca/platform.key",
                "ca/platform.pem",
                &format!("secrets/gateways/{name}.key"),
                "secrets/redis.password",
                "secrets/sealing.key",
                &format!("tls/{name}.key"),
                &format!("tls/{name}.pem"),
            ] {
                expected.push((format!("{name}/{file}"), 0o600));
            }
        }
        expected.sort();
        assert_eq!(tree(&target), expected);
        assert_eq!(std::fs::read(target.join("gateway-1/ca/platform.key")).unwrap(), b"ca/platform.key");
    }

    #[test]
    fn only_a_changed_original_is_copied_again() {
        let place = tempfile::tempdir().unwrap();
        let (directory, target) = (platform(&place.path().join("data")), place.path().join("shares"));
        write(&directory, &target).unwrap();
        let copy = |name: &str| target.join("gateway-1").join(name);
        let inode = |name: &str| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(copy(name)).unwrap());
        let before = inode("ca/platform.key");
        write_private(&directory.path("ca/platform.pem"), b"renewed").unwrap();
        write(&directory, &target).unwrap();
        assert_eq!(std::fs::read(copy("ca/platform.pem")).unwrap(), b"renewed");
        assert_eq!(inode("ca/platform.key"), before, "an unchanged file keeps its inode");
    }

    #[test]
    fn postgresql_gets_verifiers_and_the_services_get_their_urls() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("shares");
        write(&platform(&place.path().join("data")), &target).unwrap();
        let roles = std::fs::read_to_string(target.join("postgres/roles.sql")).unwrap();
        let url = std::fs::read_to_string(target.join("orders-service/secrets/database.url")).unwrap();
        assert_eq!(url, "postgres://orders:secrets/orders-database.password@postgres:5432/orders");
        assert!(!roles.contains("database.password") && roles.contains("ALTER ROLE domains PASSWORD 'SCRAM-SHA-256$"));
    }

    #[test]
    fn a_verifier_matches_the_rfc() {
        // Computed with Python's hashlib and hmac, as the RFC says.
        let expected = "SCRAM-SHA-256$4096:smcE0mHEd+mJ47Eh0wLdaA==$BoEtxDbSW4UwT6UOAa9zDumJah0pCj+Dzses5LW/OE0=:y51V9d95K2yAYndGdx73egQ8eFa23EMuQ+/Jf9uh6mo=";
        assert_eq!(scram_verifier("pencil").unwrap(), expected);
    }

    #[test]
    fn redis_gets_a_digest_and_the_rights_of_the_sample_settings() {
        let users = redis_users("abc");
        assert!(users.contains("#ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad "), "{users}");
        assert!(!users.contains("abc "), "{users}");
        assert!(users.starts_with("user default off resetpass "), "{users}");
        let settings = include_str!("../../../../config/redis.conf");
        let proposed = settings.lines().skip_while(|line| !line.starts_with("# user tollhouse"));
        let proposed: Vec<_> = proposed.flat_map(|line| line.split_whitespace()).collect();
        let rights: Vec<_> = REDIS_RIGHTS.split_whitespace().collect();
        assert!(rights.iter().all(|right| proposed.contains(right)), "{rights:?} of {proposed:?}");
        let proposed = proposed.iter().filter(|word| word.starts_with(['~', '&', '+', '-']));
        assert_eq!(proposed.count(), rights.len());
    }
}
