//! Credentials in files: each start puts gateways and services on record whose credentials are in a directory, one in each
//! file `NAME.key`.
//!
//! A file that cannot be used stops nothing. It is logged, counted and shown in the status with what to do, and the other
//! files are enrolled. What the API made later, and what was revoked, a file does not change.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use chassis::secret::Secret;
use contract::keyring::GATEWAYS_WITH_KEYS_MAX;
use contract::trust::is_node_name;
use serde::Serialize;

use crate::api::gateways::digest_of;
use crate::app::App;
use crate::store::StoreError;
use crate::store::gateways::{Enrolment, GATEWAYS_MAX, Kind, NotEnrolled};

/// Refused files that are remembered for the status; the metric counts all of them.
const REMEMBERED_MAX: usize = 100;

/// A file whose credential is not on record.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RefusedFile {
    /// Where it is, as this service sees it.
    pub(crate) file: String,
    /// One of [`REASONS`].
    pub(crate) reason: &'static str,
    /// What is wrong with it, and what to do.
    pub(crate) what_to_do: String,
}

/// Every reason why a file is refused.
pub(crate) const REASONS: [&str; 6] = ["unreadable", "revoked", "doubled", "replaced", "other_kind", "too_many"];

/// Puts the gateways and services on record whose credentials are in these directories.
///
/// # Errors
/// When a directory cannot be listed, or the database does not answer.
pub(crate) async fn at_start(app: &App, directories: [(Kind, Option<PathBuf>); 2]) -> anyhow::Result<()> {
    for (kind, directory) in directories {
        if let Some(directory) = directory {
            of_files(app, kind, &directory).await?;
        }
    }
    Ok(())
}

async fn of_files(app: &App, kind: Kind, directory: &Path) -> anyhow::Result<()> {
    for (name, path) in files(directory)? {
        if let Some(refused) = of_file(app, kind, &name, &path).await? {
            tracing::warn!(
                file = refused.file,
                name,
                reason = refused.reason,
                what_to_do = refused.what_to_do,
                "refused a credential file; the other files are used"
            );
            app.metrics.credential_files_refused.with_label_values(&[refused.reason]).inc();
            let mut all = app.refused_files.lock();
            if all.len() < REMEMBERED_MAX {
                all.push(refused);
            }
        }
    }
    Ok(())
}

/// The files with credentials and the names that they stand for, in the order of their names.
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

async fn of_file(app: &App, kind: Kind, name: &str, path: &Path) -> Result<Option<RefusedFile>, StoreError> {
    let file = path.display().to_string();
    let refused = |reason, what_to_do| Some(RefusedFile { file: file.clone(), reason, what_to_do });
    let credential = match Secret::load(path) {
        Ok(credential) => credential,
        Err(error) => {
            let what_to_do =
                format!("{error:#}; write the credential of {name} into it, or remove it, and restart this service");
            return Ok(refused("unreadable", what_to_do));
        }
    };
    let digest = digest_of(&credential);
    let mut write = app.store.write().await?;
    let enrolled = write.enrol(&Enrolment { kind, name, digest: &digest, file: Some(&file) }).await?;
    write.commit().await?;
    match enrolled {
        Ok(is_new) => {
            if is_new {
                tracing::info!(name, kind = kind.as_str(), file, "enrolled a credential from a file");
            }
            Ok(None)
        }
        Err(why) => {
            let (reason, what_to_do) = in_words(&why, kind, name);
            Ok(refused(reason, what_to_do))
        }
    }
}

/// The reason and what to do about it.
fn in_words(why: &NotEnrolled, kind: Kind, name: &str) -> (&'static str, String) {
    let add = match kind {
        Kind::Gateway => format!("tollhouse node add {name}"),
        Kind::Service => format!("tollhouse node add {name} --service"),
    };
    match why {
        NotEnrolled::Revoked => (
            "revoked",
            format!(
                "the credential in it was revoked or replaced and is never taken again; put the present credential of \
                 {name} into it (`{add}` makes one if it has none), or remove the file"
            ),
        ),
        NotEnrolled::Doubled(holder) => (
            "doubled",
            format!(
                "the credential in it belongs to {holder}; give {name} a credential of its own, or remove the file"
            ),
        ),
        NotEnrolled::Exists => (
            "replaced",
            format!("{name} has another credential, made by `{add}`; put that into the file, or remove the file"),
        ),
        NotEnrolled::OtherKind => (
            "other_kind",
            format!("{name} is on record, but not as a {}; choose another name for the file", kind.as_str()),
        ),
        NotEnrolled::TooMany => {
            let most = format!(
                "{GATEWAYS_MAX} gateways and services are on record, or {GATEWAYS_WITH_KEYS_MAX} gateways that are good, the \
                 most there may be; remove the file of {name}"
            );
            ("too_many", most)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_a_reason_that_is_counted_and_names_what_it_is_about() {
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
    fn files_are_read_in_the_order_of_their_names_and_others_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b.key", "a.key", "notes.txt", "BAD.key", ".key"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let names: Vec<_> = files(directory.path()).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
