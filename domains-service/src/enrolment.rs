//! Credentials in files: at each start, gateways and services get a record from the files `NAME.key` of a directory,
//! one credential in each.
//!
//! An unusable file stops nothing. It is logged, counted and shown in the status with the fix, and the other files are
//! enrolled. A file changes neither a credential that the API made later nor a revocation.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chassis::guard::operator_token;
use chassis::seal::{SealingKey, SealingSecrets};
use chassis::secret::Secret;
use contract::trust::is_node_name;

use crate::app::{ApiState, RefusedFile};
use crate::config::Config;
use crate::store::Result;
use crate::store::credentials::{COMMAND_LINE, Enrolment, Kind, NotEnrolled, Origin};
use crate::text::digest_of;

/// Refused files that the status lists; the metric counts all of them.
const REMEMBERED_MAX: usize = 100;

/// The source of the command line's credential, as lists and logs show it.
const PLATFORM_SECRET: &str = "the platform's secret";

/// Records the command line's credential, which derives from the platform's secret, and the credentials of gateways
/// and services in their directories. Refuses a copy of a secret that gives more access than a credential.
///
/// # Errors
/// When a directory cannot be listed, or the database does not answer.
pub(crate) async fn at_start(api: &ApiState, config: &Config) -> anyhow::Result<()> {
    enrol(api, Kind::Operator, (COMMAND_LINE, PLATFORM_SECRET), Ok(operator_token(&config.secret))).await?;
    let directories = [(Kind::Gateway, &config.gateways_directory), (Kind::Service, &config.services_directory)];
    for (kind, directory) in directories {
        let Some(directory) = directory else { continue };
        for (name, path) in files(directory)? {
            let (file, credential) = (path.display().to_string(), Secret::load(&path));
            let readable = credential.as_ref().ok();
            match readable.and_then(|credential| other_use(&api.core.sealing, &config.secret, credential)) {
                Some(what) => {
                    let what_to_do = format!(
                        "it contains {what}, which no gateway or service may have; write {name}'s own credential \
                         into it, or remove the file"
                    );
                    refuse(api, &file, &name, ("other_secret", what_to_do));
                }
                None => enrol(api, kind, (&name, &file), credential).await?,
            }
        }
    }
    Ok(())
}

/// The other purpose of this secret, if it has one besides being a credential.
fn other_use(ours: &SealingKey, platform: &Secret, credential: &Secret) -> Option<&'static str> {
    let bytes = credential.reveal();
    if bytes == platform.reveal() {
        return Some(PLATFORM_SECRET);
    }
    if bytes.starts_with(b"-----BEGIN ") {
        return Some("a key or certificate in PEM");
    }
    // A file of sealing secrets has one in each line.
    let lines = std::str::from_utf8(bytes).ok().and_then(|text| SealingSecrets::parse(text).ok());
    let sealing = SealingKey::of(&lines.unwrap_or_else(|| credential.clone().into())).ok()?;
    let mut names = sealing.older().chain([sealing.newest()]);
    names.any(|name| ours.has(name)).then_some("a sealing secret of the platform")
}

/// The files with credentials and the names that they belong to, sorted by name.
fn files(directory: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let place = || format!("the credentials in {}", directory.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(place)? {
        let path = entry.with_context(place)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".key"));
        if let Some(name) = name.filter(|name| is_node_name(name)) {
            found.push((name.to_owned(), path));
        }
    }
    found.sort();
    Ok(found)
}

/// Records the credential of a file, or the refusal.
async fn enrol(
    api: &ApiState,
    kind: Kind,
    (name, file): (&str, &str),
    credential: anyhow::Result<Secret>,
) -> Result<()> {
    let refused = match credential {
        Ok(credential) => {
            let digest = digest_of(&credential);
            let new = Enrolment { kind, name, digest: &digest, expires_at: None, from: Origin::File(file) };
            let mut write = api.core.store.write().await?;
            let enrolled = write.enrol(&new).await?;
            write.commit().await?;
            if let Ok(true) = enrolled {
                tracing::info!(kind = kind.as_str(), name, actor = file, "enrolled a credential from a file");
            }
            enrolled.err().map(|why| in_words(&why, kind, name))
        }
        Err(error) => Some((
            "unreadable",
            format!("{error:#}; write the credential of {name} into it, or remove it, and restart this service"),
        )),
    };
    if let Some(refused) = refused {
        refuse(api, file, name, refused);
    }
    Ok(())
}

/// Logs and counts the refusal of a file.
fn refuse(api: &ApiState, file: &str, name: &str, (reason, what_to_do): (&'static str, String)) {
    tracing::warn!(file, name, reason, what_to_do, "refused a credential file; the other files are used");
    api.core.metrics.credential_files_refused.with_label_values(&[reason]).inc();
    let mut all = api.faults.refused_files.lock();
    if all.len() < REMEMBERED_MAX {
        all.push(RefusedFile { file: file.to_owned(), reason, what_to_do });
    }
}

/// The reason, and the fix.
fn in_words(why: &NotEnrolled, kind: Kind, name: &str) -> (&'static str, String) {
    let add = match kind {
        Kind::Service => format!("tollhouse node add {name} --service"),
        _ => format!("tollhouse node add {name}"),
    };
    match why {
        _ if kind == Kind::Operator => (
            "revoked",
            format!("another secret replaced it, so {name} is refused; restore that secret, or make a new one"),
        ),
        NotEnrolled::Revoked => (
            "revoked",
            format!(
                "it contains a revoked or replaced credential; write the present credential of {name} into it \
                 (`{add}` makes one), or remove the file"
            ),
        ),
        NotEnrolled::Doubled(holder) => (
            "doubled",
            format!("it contains the credential of {holder}; give {name} a credential of its own, or remove the file"),
        ),
        NotEnrolled::Exists => (
            "replaced",
            format!("{name} has another credential, made by `{add}`; write that into the file, or remove the file"),
        ),
        NotEnrolled::OtherKind => {
            ("other_kind", format!("{name} is recorded, but not as a {kind}; choose another name for the file"))
        }
        NotEnrolled::TooMany => (
            "too_many",
            format!("the maximum of {kind} credentials is reached; revoke one, or remove the file of {name}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::REASONS;

    #[test]
    fn every_refusal_has_a_counted_reason_and_names_its_subject() {
        for why in [
            NotEnrolled::Exists,
            NotEnrolled::OtherKind,
            NotEnrolled::Doubled("edge-2".to_owned()),
            NotEnrolled::Revoked,
            NotEnrolled::TooMany,
        ] {
            let (reason, what_to_do) = in_words(&why, Kind::Gateway, "edge-1");
            assert!(REASONS.contains(&reason), "{reason}");
            assert!(what_to_do.contains("edge-1"), "{what_to_do}");
        }
    }

    #[test]
    fn key_files_are_read_by_name_and_other_files_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b.key", "a.key", "notes.txt", "BAD.key", ".key"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let names: Vec<_> = files(directory.path()).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
