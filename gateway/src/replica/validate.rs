//! What the replica refuses: the control plane is trusted to be ours, not to be right.
//!
//! Types have refused most by now (blank names, unknown plans, zero limits do not parse). What is left are relations:
//! a certificate that does not open or does not fit its key or name, a redirect to itself, duplicates.

use std::collections::HashSet;

use contract::certificate::Challenge;
use contract::feed::{Entity, EntityName, Revision};

use crate::tls::CertificateOpener;

/// Entities one snapshot may hold; a stream that never ends must not fill the memory.
pub(crate) const ENTITIES_MAX: u64 = 5_000_000;

/// Why a snapshot or change is refused. The word in the metric is [`Invalid::reason`].
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
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
    },
    /// Two entities have one name.
    #[error("{0:?} appears twice")]
    Duplicate(EntityName),
    /// A certificate that does not open, does not parse, or does not belong to its name or key.
    #[error("the certificate of {hostname} is not usable: {reason}")]
    Certificate {
        /// The name it was for.
        hostname: contract::hostname::Hostname,
        /// What is wrong with it.
        reason: String,
    },
    /// A site that redirects to itself.
    #[error("{0} redirects to itself")]
    Loop(contract::hostname::Hostname),
    /// A challenge whose token could not be part of a path.
    #[error("a challenge for {0} has a malformed token")]
    Token(contract::hostname::Hostname),
    /// A line that is no frame.
    #[error("a line of the stream is not understood: {0}")]
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
            Self::Certificate { .. } => "certificate",
            Self::Loop(_) => "loop",
            Self::Token(_) => "token",
            Self::Line(_) => "line",
        }
    }

    /// Every word [`Invalid::reason`] can say.
    pub const REASONS: &'static [&'static str] =
        &["count", "history", "shrunk", "duplicate", "certificate", "loop", "token", "line"];
}

pub(super) fn entity(entity: &Entity, opener: &CertificateOpener) -> Result<(), Invalid> {
    match entity {
        Entity::Site(site) if site.redirect.as_ref().is_some_and(|redirect| redirect.to == site.hostname) => {
            Err(Invalid::Loop(site.hostname.clone()))
        }
        Entity::Certificate(bundle) => opener
            .open(bundle)
            .map(drop)
            .map_err(|error| Invalid::Certificate { hostname: bundle.hostname.clone(), reason: format!("{error:#}") }),
        Entity::Challenge(challenge) if !Challenge::is_token(&challenge.token) => {
            Err(Invalid::Token(challenge.hostname.clone()))
        }
        Entity::Site(_) | Entity::Challenge(_) | Entity::Project(_) | Entity::Key(_) => Ok(()),
    }
}

pub(super) fn snapshot(entities: &[Entity], opener: &CertificateOpener) -> Result<(), Invalid> {
    let mut names = HashSet::with_capacity(entities.len());
    for one in entities {
        entity(one, opener)?;
        let name = one.name();
        if names.contains(&name) {
            return Err(Invalid::Duplicate(name));
        }
        names.insert(name);
    }
    Ok(())
}
