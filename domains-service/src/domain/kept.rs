//! The record of a removed project's domains, for a restore.
//!
//! A removal takes the domains off the edge and releases their names at once: another project may prove and take them.
//! A restore adds the domains again, each with its former role and redirect, and DNS is checked again.

use contract::hostname::Hostname;
use contract::time::UnixMillis;
use serde::{Deserialize, Serialize};

use super::{Domain, RedirectRule};
use crate::project::ProjectRef;

/// A domain as stored with its removed project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptDomain {
    name: Hostname,
    primary: bool,
    redirect: Option<RedirectRule>,
}

impl KeptDomain {
    /// The stored form of a domain.
    pub(crate) fn of(domain: &Domain) -> Self {
        let primary = domain.primary || domain.primary_wanted;
        Self { name: domain.name.clone(), primary, redirect: domain.redirect.clone() }
    }

    /// The domain again, to be verified.
    pub(crate) fn added(self, project: &ProjectRef, now: UnixMillis) -> Domain {
        let mut domain = Domain::added(self.name, project.clone(), now);
        domain.primary_wanted = self.primary;
        domain.redirect = self.redirect;
        domain
    }
}
