//! Validates updates of the replica: the control plane is authenticated, but may send wrong data.
//!
//! Types already exclude most errors (blank names, unknown plans and zero limits do not parse). Checked here are
//! relations: a certificate that cannot be decrypted or does not match its key or name, a redirect to itself,
//! duplicates.
//!
//! A single unusable certificate is skipped: the previous one stays, and everything else is applied, so that
//! revocations still reach this gateway. Any other error refuses the whole update, because the previous version of a
//! site, project or key may be the withdrawn one.

use std::collections::HashSet;

use contract::feed::{Entity, EntityName, InvalidEntity, Position, Revision};
use contract::hostname::Hostname;

use crate::tls::CertificateOpener;

/// The most entities in one snapshot, so that an endless stream does not fill the memory.
pub(crate) const ENTITIES_MAX: u64 = 5_000_000;

/// Unusable certificates that one snapshot may have. If more are unusable, this gateway is probably at fault, and the
/// snapshot is refused.
const UNUSABLE_MAX: usize = 1_000;

/// A certificate that cannot be decrypted or parsed, or does not match its name or key.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[error("the certificate of {hostname} is not usable: {reason}")]
pub struct Unusable {
    /// Its hostname.
    pub hostname: String,
    /// Its fault.
    pub reason: String,
}

impl Unusable {
    /// The word in `edge_replica_refused_total{reason}`.
    pub const REASON: &str = "certificate";

    /// Logs the fault and what to do.
    pub(super) fn log(&self) {
        tracing::error!(
            hostname = self.hostname,
            error = self.reason,
            "refused an unusable certificate; the previous one stays in use. Remove the domain and add it again for a new \
             one, or repair its row in the control plane's database and run `tollhouse node accept`"
        );
    }
}

/// Why a snapshot or change is refused. [`Invalid::reason`] is the word in the metric.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    /// Fewer or more entities than announced, or more than allowed.
    #[error("the snapshot announced {announced} entities and contained {found}")]
    Count {
        /// The number in the first line.
        announced: u64,
        /// The number that arrived.
        found: u64,
    },
    /// The control plane's database does not have the last applied changes.
    #[error(
        "the control plane's database does not have the changes up to revision {known} that this gateway applied: the \
         database went back to an earlier state, or it is another one"
    )]
    History {
        /// The newest applied revision.
        known: Revision,
        /// The position of that database, if the control plane sent it.
        there: Option<Position>,
    },
    /// A snapshot without most of the served hostnames.
    #[error("the snapshot has {found} hostnames and {known} are served")]
    Shrunk {
        /// Hostnames served now.
        known: u64,
        /// Hostnames in the snapshot.
        found: u64,
        /// The position of its database.
        there: Position,
    },
    /// Two entities have the same name.
    #[error("{0:?} appears twice")]
    Duplicate(EntityName),
    /// A certificate that this gateway cannot decrypt for lack of a sealing secret.
    #[error("the private key of {0} is sealed with a sealing secret that this gateway was not given")]
    Secret(Hostname),
    /// More than `UNUSABLE_MAX` certificates are unusable.
    #[error("{found} certificates are not usable; {first}")]
    Certificates {
        /// The number.
        found: usize,
        /// The fault of one of them.
        first: String,
    },
    /// An invalid site or challenge.
    #[error(transparent)]
    Entity(#[from] InvalidEntity),
    /// A malformed line.
    #[error("cannot parse a line of the change stream: {0}")]
    Line(String),
}

impl Invalid {
    /// The word in `edge_replica_refused_total{reason}`.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Count { .. } => "count",
            Self::History { .. } => "history",
            Self::Shrunk { .. } => "shrunk",
            Self::Duplicate(_) => "duplicate",
            Self::Certificates { .. } | Self::Secret(_) => Unusable::REASON,
            Self::Entity(InvalidEntity::Loop(_)) => "loop",
            Self::Entity(InvalidEntity::Token(_)) => "token",
            Self::Line(_) => "line",
        }
    }

    /// The operator's next step.
    pub(super) const fn remedy(&self) -> &'static str {
        match self {
            Self::History { .. } => {
                "put the right database back, or run `tollhouse node accept` to accept this one (docs/operator/backup.md)"
            }
            Self::Shrunk { .. } => {
                "put the right database back; if most of the hostnames were removed, run `tollhouse node accept`"
            }
            Self::Secret(_) | Self::Certificates { .. } => {
                "give this gateway every line of sealing_secret_file that the others have, and restart it"
            }
            Self::Count { .. } | Self::Duplicate(_) | Self::Entity(_) | Self::Line(_) => {
                "upgrade this gateway if the control plane is newer; otherwise correct the named project or domain"
            }
        }
    }

    /// The position of the refused database, if an operator may accept it.
    pub(super) const fn acceptable(&self) -> Option<Position> {
        match self {
            Self::History { there, .. } => *there,
            Self::Shrunk { there, .. } => Some(*there),
            _ => None,
        }
    }

    /// Every word that [`Invalid::reason`] can return.
    pub const REASONS: &'static [&'static str] =
        &["count", "history", "shrunk", "duplicate", Unusable::REASON, "loop", "token", "line"];
}

/// The fault of an entity that can be skipped alone.
///
/// # Errors
/// If it cannot be skipped.
pub(super) fn entity(entity: &Entity, opener: &CertificateOpener) -> Result<Option<Unusable>, Invalid> {
    entity.check()?;
    let Entity::Certificate(bundle) = entity else { return Ok(None) };
    let Err(error) = opener.open(bundle) else { return Ok(None) };
    if !opener.has_secret_of(bundle) {
        return Err(Invalid::Secret(bundle.hostname.clone()));
    }
    Ok(Some(Unusable { hostname: bundle.hostname.to_string(), reason: format!("{error:#}") }))
}

/// The unusable certificates of a snapshot.
///
/// # Errors
/// If the snapshot is refused.
pub(super) fn snapshot(entities: &[Entity], opener: &CertificateOpener) -> Result<Vec<Unusable>, Invalid> {
    let mut names = HashSet::with_capacity(entities.len());
    let mut unusable = Vec::new();
    for one in entities {
        unusable.extend(entity(one, opener)?);
        let name = one.name();
        if names.contains(&name) {
            return Err(Invalid::Duplicate(name));
        }
        names.insert(name);
    }
    match unusable.first() {
        Some(first) if unusable.len() > UNUSABLE_MAX => {
            Err(Invalid::Certificates { found: unusable.len(), first: first.to_string() })
        }
        _ => Ok(unusable),
    }
}
