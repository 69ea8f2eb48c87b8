//! What each process of a deployment is given of the secrets: copies of the files it needs, in a directory of its own,
//! so that whoever breaks into one process does not hold the secrets of all.
//!
//! The directories are made to be volumes. Files keep the names that they have in the data directory; servers that are
//! not ours find what they need directly in theirs, readable by any user, because theirs is another than ours and
//! nobody else is given the volume. A copy is written when it differs from its original, so that who watches a file
//! sees only true changes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use aws_lc_rs::digest;
use chassis::secret::write_private;

use crate::directory::Directory;

/// Which of our processes needs which files.
const OURS: [(&str, &[&str]); 3] = [
    (
        "gateway",
        &[
            "secrets/platform.key",
            "secrets/sealing.key",
            "secrets/redis.password",
            "ca/platform.pem",
            "ca/platform.key",
        ],
    ),
    ("orders-service", &["secrets/platform.key"]),
    ("domains-service", &["secrets/platform.key", "secrets/sealing.key", "ca/ca.pem", "ca/ca.key"]),
];

/// What a gateway may do in Redis; config/redis.conf proposes the same.
const REDIS_RIGHTS: &str = "~tollhouse:* &tollhouse:* -@all +evalsha +eval +script|load +info +time +hgetall +hset \
    +hdel +hget +hmget +del +pexpireat +pexpire +zadd +zcard +zremrangebyscore +publish +subscribe +unsubscribe +ping \
    +cluster|slots +hello +auth";

/// Brings the directory of every process below `target` up to date.
///
/// # Errors
/// When a file cannot be read or written.
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
    let password = password("secrets/grafana.password")?;
    replace(&target.join("grafana/admin.password"), password.as_bytes(), 0o644)
}

/// Redis is told a digest: of 256 random bits nobody finds the bits. `health` may ask whether Redis is alive. Nobody can be
/// the default user, which keeps all rights nevertheless: as that user Redis replays its log when it starts, and up to
/// 2025 it skipped the transactions in the log that this user may not carry out, the ledger's scripts among them.
fn redis_users(password: &str) -> String {
    let digest = digest::digest(&digest::SHA256, password.as_bytes());
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "user default off resetpass ~* &* +@all\nuser health on nopass -@all +ping\nuser tollhouse on #{digest} {REDIS_RIGHTS}\n"
    )
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
        for file in files.chain(&["secrets/grafana.password", "secrets/postgres.password"]) {
            write_private(&directory.path(file), file.as_bytes()).unwrap();
        }
        directory
    }

    #[test]
    fn each_process_is_given_what_it_needs_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("shares");
        write(&platform(&place.path().join("data")), &target).unwrap();
        let expected = [
            ("domains-service/ca/ca.key", 0o600),
            ("domains-service/ca/ca.pem", 0o600),
            ("domains-service/secrets/platform.key", 0o600),
            ("domains-service/secrets/sealing.key", 0o600),
            ("gateway/ca/platform.key", 0o600),
            ("gateway/ca/platform.pem", 0o600),
            ("gateway/secrets/platform.key", 0o600),
            ("gateway/secrets/redis.password", 0o600),
            ("gateway/secrets/sealing.key", 0o600),
            ("grafana/admin.password", 0o644),
            ("orders-service/secrets/platform.key", 0o600),
            ("redis/users.acl", 0o644),
        ];
        assert_eq!(tree(&target), expected.map(|(path, mode)| (path.to_owned(), mode)));
        assert_eq!(std::fs::read(target.join("gateway/ca/platform.key")).unwrap(), b"ca/platform.key");
    }

    #[test]
    fn a_changed_original_is_copied_again_and_an_unchanged_one_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let (directory, target) = (platform(&place.path().join("data")), place.path().join("shares"));
        write(&directory, &target).unwrap();
        let copy = |name: &str| target.join("gateway").join(name);
        let inode = |name: &str| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(copy(name)).unwrap());
        let before = inode("ca/platform.key");
        write_private(&directory.path("ca/platform.pem"), b"renewed").unwrap();
        write(&directory, &target).unwrap();
        assert_eq!(std::fs::read(copy("ca/platform.pem")).unwrap(), b"renewed");
        assert_eq!(inode("ca/platform.key"), before, "a file that is watched has not moved");
    }

    #[test]
    fn redis_learns_a_digest_and_the_rights_its_settings_propose() {
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
