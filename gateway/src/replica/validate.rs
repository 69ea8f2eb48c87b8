//! What the replica refuses: the control plane is trusted to be ours, not to be right.
//!
//! Types have refused most by now (blank names, unknown plans, zero limits do not parse). What is left are relations:
//! a certificate that does not open or does not fit its key or name, a redirect to itself, duplicates.
//!
//! A certificate that is not usable is set aside alone: the one before stays, and whatever else was sent is taken, so that
//! revocations go on reaching this gateway. Everything else is refused with all that came with it: the one before of a site,
//! project or key may be what was withdrawn.

use std::collections::HashSet;

use contract::feed::{Entity, EntityName, Position, Revision, Unsound};
use contract::hostname::Hostname;

use crate::tls::CertificateOpener;

/// Entities one snapshot may hold; a stream that never ends must not fill the memory.
pub(crate) const ENTITIES_MAX: u64 = 5_000_000;

/// Certificates of one snapshot that may be set aside. More are no damage of theirs, but of this gateway, and the snapshot is
/// refused.
const SET_ASIDE_MAX: usize = 1_000;

/// A certificate that does not open, does not parse, or does not belong to its name or key.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[error("the certificate of {hostname} is not usable: {reason}")]
pub(crate) struct Unusable {
    /// The name it was for.
    pub(crate) hostname: String,
    /// What is wrong with it.
    pub(crate) reason: String,
}

impl Unusable {
    /// The word in `edge_replica_refused_total{reason}`.
    pub(crate) const REASON: &str = "certificate";

    /// Says in the log what happened and what to do.
    pub(super) fn log(&self) {
        tracing::error!(
            hostname = self.hostname,
            error = self.reason,
            "certificate set aside: it is not usable, and the one before it stays; remove the domain and add it again for a \
             new one, or mend its row in the control plane's database and run `tollhouse node accept`"
        );
    }
}

/// Why a snapshot or change is refused. The word in the metric is [`Invalid::reason`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Invalid {
    /// Fewer or more entities than announced, or more than anybody should have.
    #[error("the snapshot announced {announced} entities and brought {found}")]
    Count {
        /// What the first line said.
        announced: u64,
        /// What came.
        found: u64,
    },
    /// The control plane's database does not have what was applied last.
    #[error(
        "the control plane's database does not have the changes up to revision {known} that this gateway applied: the \
         database went back to an earlier state, or it is another one. Put the right database back, or run `tollhouse node \
         accept` to take what this one holds"
    )]
    History {
        /// The newest revision applied.
        known: Revision,
        /// Where that database is, if the control plane said so.
        there: Option<Position>,
    },
    /// A snapshot without most of what is served.
    #[error(
        "the snapshot has {found} hostnames and {known} are served: if most of them were removed, run `tollhouse node \
         accept`"
    )]
    Shrunk {
        /// Hostnames that are served.
        known: u64,
        /// Hostnames of the snapshot.
        found: u64,
        /// Where the database is that it is of.
        there: Position,
    },
    /// Two entities have one name.
    #[error("{0:?} appears twice")]
    Duplicate(EntityName),
    /// A certificate that others can open: it is this gateway that lacks something.
    #[error(
        "the private key of {0} is sealed with a sealing secret that this gateway was not given: give it every line of \
         sealing_secret_file that the others have, and restart it"
    )]
    Secret(Hostname),
    /// More certificates than `SET_ASIDE_MAX` are not usable.
    #[error("{found} certificates are not usable; {first}")]
    Certificates {
        /// How many.
        found: usize,
        /// What is wrong with one of them.
        first: String,
    },
    /// A site or challenge that cannot be.
    #[error(transparent)]
    Unsound(#[from] Unsound),
    /// A line that is no frame.
    #[error("a line of the stream is not understood: {0}")]
    Line(String),
}

impl Invalid {
    /// The word in `edge_replica_refused_total{reason}`.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Count { .. } => "count",
            Self::History { .. } => "history",
            Self::Shrunk { .. } => "shrunk",
            Self::Duplicate(_) => "duplicate",
            Self::Certificates { .. } | Self::Secret(_) => Unusable::REASON,
            Self::Unsound(Unsound::Loop(_)) => "loop",
            Self::Unsound(Unsound::Token(_)) => "token",
            Self::Line(_) => "line",
        }
    }

    /// Where the database is whose state is refused, where an operator may accept that.
    pub(super) const fn acceptable(&self) -> Option<Position> {
        match self {
            Self::History { there, .. } => *there,
            Self::Shrunk { there, .. } => Some(*there),
            _ => None,
        }
    }

    /// Every word [`Invalid::reason`] can say.
    pub(crate) const REASONS: &'static [&'static str] =
        &["count", "history", "shrunk", "duplicate", Unusable::REASON, "loop", "token", "line"];
}

/// What is wrong with an entity that can be set aside alone.
///
/// # Errors
/// When it cannot.
pub(super) fn entity(entity: &Entity, opener: &CertificateOpener) -> Result<Option<Unusable>, Invalid> {
    entity.check()?;
    let Entity::Certificate(bundle) = entity else { return Ok(None) };
    let Err(error) = opener.open(bundle) else { return Ok(None) };
    if !opener.has_secret_of(bundle) {
        return Err(Invalid::Secret(bundle.hostname.clone()));
    }
    Ok(Some(Unusable { hostname: bundle.hostname.to_string(), reason: format!("{error:#}") }))
}

/// The certificates of a snapshot that are set aside.
///
/// # Errors
/// When the snapshot is refused.
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
        Some(first) if unusable.len() > SET_ASIDE_MAX => {
            Err(Invalid::Certificates { found: unusable.len(), first: first.to_string() })
        }
        _ => Ok(unusable),
    }
}
