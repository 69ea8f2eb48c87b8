//! Finds the site of the host, and checks that this connection may be used for it.
//!
//! A connection belongs to the name of its TLS handshake. Another host on it is served only if the presented
//! certificate covers both names and both belong to the same tenant, as browsers that share connections expect.
//! Everything else is 421, so that no response of one tenant ever travels on a connection opened for another.

use contract::hostname::Hostname;
use contract::project::Access;
use contract::site::{Serves, Site};

use super::Pipeline;
use crate::answer::Answer;
use crate::facts::{Facts, Surface};
use crate::request::EdgeRequest;
use contract::rejection::Rejection;

impl Pipeline {
    pub(super) fn locate(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> Result<(), Answer> {
        facts.host = Some(request.host.clone());
        facts.port = request.port;
        if !self.replica.is_present() {
            return Err(Rejection::Starting.into());
        }
        let site = self.replica.site(&request.host);
        if request.is_tls && request.sni != Some(&request.host) {
            let coalesced = site.as_deref().zip(request.sni).is_some_and(|(site, sni)| self.may_share(sni, site));
            if !coalesced {
                return Err(Rejection::MisdirectedRequest.into());
            }
        }
        let site = site.ok_or(Rejection::UnknownHost)?;
        let (access, upstream) = match &site.serves {
            Serves::Platform { access, upstream } => (*access, upstream),
            Serves::Project(id) => {
                // The site's project has not arrived yet: changes of one transaction arrive one after the other.
                let project = self.replica.project(id).ok_or(Rejection::UnknownHost)?;
                if project.suspended {
                    return Err(Rejection::ProjectSuspended.into());
                }
                let project = facts.project.insert(project);
                (project.access, &project.upstream)
            }
        };
        facts.upstream.configured = self.upstreams.find(upstream);
        facts.surface = match access {
            Access::Key => Surface::Api,
            Access::Public => Surface::Site,
        };
        facts.site = Some(site);
        Ok(())
    }

    /// Only the platform's wildcard covers several names; a customer's domain has its own certificate.
    fn may_share(&self, sni: &Hostname, site: &Site) -> bool {
        let Some(certificate) = &self.platform_certificate else { return false };
        let covers_both = [sni, &site.hostname]
            .into_iter()
            .all(|name| self.replica.certificate(name).is_none() && certificate.covering(name).is_some());
        covers_both && self.replica.site(sni).is_some_and(|other| other.project() == site.project())
    }
}
