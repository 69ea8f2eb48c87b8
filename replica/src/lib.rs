//! The gateway's local copy of all sites, projects, keys, certificates and challenges.
//!
//! The copy is stored in a local file (`file`) and kept current by the change stream ([`follow`]). Requests and
//! handshakes read bounded caches over that file; a miss reads the file, never the network. While the control plane is
//! unavailable the copy stays as it is: everything in it is served, also after a restart, except after a graceful
//! shutdown or in a copied directory ([`Unregistered`]).
//!
//! An invalid snapshot or change is refused as a whole, and the last good state stays. A single unusable certificate is
//! skipped, and the previous one stays (`validate`).

pub mod damage;
mod tls;
mod unserved;
mod validate;
mod file;
mod hot;
mod registration;
mod acceptance;
mod stream;
pub mod follow;
pub mod fuzzing;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use contract::certificate::Challenge;
use contract::feed::{Change, Effect, Entity, EntityName, Position, Revision};
use contract::hostname::Hostname;
use contract::key::{ApiKey, KeyDigest, KeyId};
use contract::project::{Project, ProjectId, UpstreamName};
use contract::site::{Serves, Site};
use contract::time::UnixSeconds;
use parking_lot::Mutex;
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use self::acceptance::Refused;
pub use self::acceptance::{Acceptance, Changes, Difference, Names, NotAccepted};
use self::file::{File, Kind, Step};
use self::hot::Hot;
use self::registration::Registration;
pub use self::registration::Unregistered;
pub use self::tls::CertificateOpener;
pub use self::unserved::UnservedNames;
pub use self::validate::Invalid;
pub use self::validate::Unusable;

/// The gateway's enrolled name, as in `tollhouse node list`; `None` until the control plane first sends it. It is
/// stored with the keys, so the next process over the same directory has it at once.
pub type EnrolledName = Arc<ArcSwapOption<String>>;

/// How many entries of each kind stay parsed in memory (target: 100 thousand).
#[derive(Clone, Copy, Debug)]
pub struct HotBounds {
    /// Sites, projects and keys, each.
    pub entries_max: u64,
    /// Certificates: about 2.5 KiB each.
    pub certificates_max: u64,
}

impl Default for HotBounds {
    fn default() -> Self {
        Self { entries_max: 100_000, certificates_max: 100_000 }
    }
}

/// The operator's next step if the replica's file cannot be read or written.
pub(crate) const REPAIR_DISK: &str = "check the disk of data_directory: its free space, its rights and its health";

/// Why the replica refused an update.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// The content is invalid; the last good state stays.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The next revision is missing: ask again from the applied one.
    #[error("received revision {found}, expected {expected}")]
    Gap {
        /// The revision that arrived.
        found: Revision,
        /// The expected revision.
        expected: Revision,
    },
    /// The local file cannot be read or written.
    #[error("cannot read or write the local replica file")]
    File(#[source] anyhow::Error),
}

/// The validity of a certificate in use.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Expiry {
    /// Its hostname.
    pub hostname: String,
    /// First second of validity.
    pub not_before: UnixSeconds,
    /// Last second of validity.
    pub not_after: UnixSeconds,
}

impl Expiry {
    /// The remaining part of the lifetime, from 1 (new) to 0 (expired).
    #[expect(clippy::cast_precision_loss, reason = "seconds of a certificate's life are far below 2^53")]
    pub fn left(&self, now: UnixSeconds) -> f64 {
        let whole = self.not_after.0.saturating_sub(self.not_before.0).max(1);
        let left = self.not_after.0.saturating_sub(now.0).clamp(0, whole);
        left as f64 / whole as f64
    }
}

/// The effects of a batch of changes.
#[derive(Debug, Default)]
pub struct Applied {
    /// Hostnames that are no longer served; their open connections must end.
    pub retired: Vec<Hostname>,
    /// Unusable certificates, which were skipped.
    pub unusable: Vec<Unusable>,
}

/// The gateway's local copy. Shared by handshakes, requests and the follower.
pub struct Replica {
    file: File,
    opener: CertificateOpener,
    revision: AtomicU64,
    sites: Hot<Hostname, Site>,
    projects: Hot<ProjectId, Project>,
    keys: Hot<KeyDigest, ApiKey>,
    certificates: Hot<Hostname, CertifiedKey>,
    challenges: Hot<String, Challenge>,
    /// The acceptance of an operator.
    acceptance: watch::Sender<Acceptance>,
    /// Why the control plane's state is refused at present.
    refusal: Mutex<Option<Refused>>,
    registration: Registration,
    /// Names of handshakes without a certificate, for the next report.
    pub unserved: UnservedNames,
}

/// Below this number of hostnames, a snapshot may have less than half of them.
const HOSTNAMES_FEW: u64 = 10;

impl Replica {
    /// Opens the local file, or creates it. A damaged one is renamed.
    ///
    /// # Errors
    /// If the file is in use, or cannot be opened because of the disk or its permissions.
    pub fn open(path: &Path, opener: &CertificateOpener, bounds: HotBounds) -> anyhow::Result<Self> {
        damage::open(path, || Self::over(File::open(path)?, opener.clone(), bounds))
    }

    fn over(file: File, opener: CertificateOpener, bounds: HotBounds) -> anyhow::Result<Self> {
        let revision = file.position()?.map_or(Revision::default(), |position| position.revision);
        let registration = Registration::of_file(file.is_stopped()?);
        Ok(Self {
            file,
            opener,
            revision: AtomicU64::new(revision.0),
            sites: Hot::new(bounds.entries_max),
            projects: Hot::new(bounds.entries_max),
            keys: Hot::new(bounds.entries_max),
            certificates: Hot::new(bounds.certificates_max),
            challenges: Hot::new(1_000),
            acceptance: watch::channel(Acceptance::None).0,
            refusal: Mutex::default(),
            registration,
            unserved: UnservedNames::default(),
        })
    }

    /// The newest applied revision; 0 if there is no replica yet.
    pub fn revision(&self) -> Revision {
        Revision(self.revision.load(Ordering::Acquire))
    }

    /// The control plane's position in its history when it sent the applied state.
    pub fn position(&self) -> Result<Option<Position>, ReplicaError> {
        self.file.position().map_err(ReplicaError::File)
    }

    /// Whether a snapshot was applied, now or before, and is served.
    pub fn is_present(&self) -> bool {
        self.revision() > Revision::default() && !self.registration.is_held()
    }

    /// Looks up, unless nothing is served.
    fn served<T>(&self, look_up: impl FnOnce() -> Option<T>) -> Option<T> {
        if self.registration.is_held() { None } else { look_up() }
    }

    /// The site of a hostname.
    pub fn site(&self, hostname: &Hostname) -> Option<Arc<Site>> {
        self.served(|| self.sites.get(hostname, || self.file.get(Kind::Site, hostname.as_str())))
    }

    /// A project.
    pub fn project(&self, id: &ProjectId) -> Option<Arc<Project>> {
        self.served(|| self.projects.get(id, || self.file.get(Kind::Project, id.as_str())))
    }

    /// A key, by its digest.
    pub fn key(&self, digest: &KeyDigest) -> Option<Arc<ApiKey>> {
        self.served(|| self.keys.get(digest, || self.file.get(Kind::Key, &digest.to_text())))
    }

    /// The certificate of a hostname, parsed and ready to sign.
    pub fn certificate(&self, hostname: &Hostname) -> Option<Arc<CertifiedKey>> {
        let load = || {
            let bundle = self.file.get(Kind::Certificate, hostname.as_str())?;
            match self.opener.open(&bundle) {
                Ok(certified) => Some(certified),
                Err(error) => {
                    tracing::error!(
                        %hostname, error = format!("{error:#}"),
                        "cannot use a stored certificate; refusing handshakes for its hostname"
                    );
                    None
                }
            }
        };
        self.served(|| self.certificates.get(hostname, load))
    }

    /// The key with this public id. Keys are stored by digest, so this searches all of them; for operators.
    pub fn key_called(&self, id: &KeyId) -> Option<ApiKey> {
        self.file.find(Kind::Key, 1, |key: &ApiKey| key.id == *id).pop()
    }

    /// Whether a site is served by this upstream. Searches all sites: not for requests.
    pub fn uses(&self, upstream: &UpstreamName) -> bool {
        let of_platform =
            |site: &Site| matches!(&site.serves, Serves::Platform { upstream: own, .. } if own == upstream);
        let of_project = |project: &Project| project.upstream == *upstream;
        !self.file.find(Kind::Site, 1, of_platform).is_empty()
            || !self.file.find(Kind::Project, 1, of_project).is_empty()
    }

    /// The platform's own hosts without a certificate of their own. Searches all sites: not for requests.
    pub fn platform_hosts(&self) -> Vec<Hostname> {
        let of_platform = |site: &Site| matches!(site.serves, Serves::Platform { .. });
        let sites = self.file.find(Kind::Site, usize::MAX, of_platform);
        sites.into_iter().map(|site| site.hostname).filter(|host| self.certificate(host).is_none()).collect()
    }

    /// The certificates that expire first, at most `limit`.
    pub fn soonest_to_expire(&self, limit: usize) -> Vec<Expiry> {
        self.file.soonest_to_expire(limit)
    }

    /// The challenge with this token.
    pub fn challenge(&self, token: &str) -> Option<Arc<Challenge>> {
        self.served(|| self.challenges.get(&token.to_owned(), || self.file.get(Kind::Challenge, token)))
    }

    /// The challenge in progress for a hostname, for TLS-ALPN-01.
    pub fn challenge_for(&self, hostname: &Hostname) -> Option<Challenge> {
        let is_its = |challenge: &Challenge| challenge.hostname == *hostname;
        self.served(|| self.file.find(Kind::Challenge, 1, is_its).pop())
    }

    /// Applies a batch of changes in one durable step. Revisions must follow the applied one without a gap; applied
    /// ones are skipped, so a repeated batch is harmless.
    ///
    /// # Errors
    /// [`ReplicaError`]; nothing of the batch is applied then.
    pub fn apply(&self, changes: &[Change]) -> Result<Applied, ReplicaError> {
        let mut expected = self.revision().next();
        let mut batch = Vec::with_capacity(changes.len());
        let applied = self.revision();
        for change in changes.iter().filter(|change| change.revision > applied) {
            if change.revision != expected {
                return Err(ReplicaError::Gap { found: change.revision, expected });
            }
            let unusable = match &change.effect {
                Effect::Put(entity) => validate::entity(entity, &self.opener)?,
                Effect::Remove(_) => None,
            };
            batch.push(unusable.map_or(Step::Take(&change.effect), Step::Skip));
            expected = expected.next();
        }
        let mut done = Applied::default();
        let Some(last) = changes.last().filter(|_| !batch.is_empty()) else { return Ok(done) };
        self.file.apply(&batch, last.position()).map_err(ReplicaError::File)?;
        self.revision.store(last.revision.0, Ordering::Release);
        for step in batch {
            match step {
                Step::Take(effect) => self.forget(effect, &mut done.retired),
                Step::Skip(unusable) => done.unusable.push(unusable),
            }
        }
        Ok(done)
    }

    /// Replaces everything with a snapshot in one durable step. The control plane sends one only to a new gateway, or
    /// to one with the same history. A snapshot without most of the hostnames is refused unless an operator has
    /// accepted it. Returns the unusable certificates, which were skipped.
    ///
    /// # Errors
    /// [`ReplicaError`]; the old state stays then.
    pub fn replace(&self, entities: &[Entity], position: Position) -> Result<Vec<Unusable>, ReplicaError> {
        let unusable = validate::snapshot(entities, &self.opener)?;
        let difference = if self.accepts() {
            Some(Difference::between(&self.file, entities, position.revision).map_err(ReplicaError::File)?)
        } else {
            self.has_most_hostnames(entities, position)?;
            None
        };
        self.file.replace(entities, &unusable, position).map_err(ReplicaError::File)?;
        self.revision.store(position.revision.0, Ordering::Release);
        self.sites.forget_all();
        self.projects.forget_all();
        self.keys.forget_all();
        self.certificates.forget_all();
        self.challenges.forget_all();
        if let Some(difference) = difference {
            self.set_refusal(None);
            self.acceptance.send_replace(Acceptance::Taken(Box::new(difference)));
        }
        Ok(unusable)
    }

    /// The unusable certificates, at most `limit`.
    pub fn unusable(&self, limit: usize) -> Vec<Unusable> {
        self.file.unusable(limit)
    }

    fn has_most_hostnames(&self, entities: &[Entity], there: Position) -> Result<(), ReplicaError> {
        let known = self.file.count(Kind::Site);
        let known = if self.file.damage.is_there() { known.unwrap_or(0) } else { known.map_err(ReplicaError::File)? };
        let found = entities.iter().filter(|entity| matches!(entity, Entity::Site(_))).count() as u64;
        if known > HOSTNAMES_FEW && found < known / 2 {
            return Err(Invalid::Shrunk { known, found, there }.into());
        }
        Ok(())
    }

    /// Why the control plane's data is refused at present, and the operator's next step: its content is invalid, or the
    /// file cannot be written.
    pub fn refusal(&self) -> Option<(String, &'static str)> {
        self.refused().map(|refused| (refused.why, refused.what_to_do))
    }

    pub(crate) fn refused(&self) -> Option<Refused> {
        let damage = || self.file.damage.in_words().map(|why| Refused { why, what_to_do: REPAIR_DISK, there: None });
        self.refusal.lock().clone().or_else(damage)
    }

    /// Records that the control plane's data is refused, or accepted again.
    pub(crate) fn set_refusal(&self, refused: Option<Refused>) {
        *self.refusal.lock() = refused;
    }

    fn forget(&self, effect: &Effect, retired: &mut Vec<Hostname>) {
        let (name, removed) = match effect {
            Effect::Put(entity) => (entity.name(), false),
            Effect::Remove(name) => (name.clone(), true),
        };
        match name {
            EntityName::Site(hostname) => {
                self.sites.forget(&hostname);
                if removed {
                    retired.push(hostname);
                }
            }
            EntityName::Project(id) => self.projects.forget(&id),
            EntityName::Key(digest) => self.keys.forget(&digest),
            EntityName::Certificate(hostname) => self.certificates.forget(&hostname),
            EntityName::Challenge(token) => self.challenges.forget(&token),
        }
    }
}

#[cfg(test)]
mod tests;
