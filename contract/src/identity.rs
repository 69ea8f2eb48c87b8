//! The authenticated caller of a request, signed by the gateway and verified by services.
//!
//! The gateway authenticates; services authorise. The gateway sends a [token](crate::token). A request without a valid
//! token did not come through the gateway and is refused.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::key::{Environment, KeyId, Scopes};
use crate::plan::Plan;
use crate::project::{ProjectId, ProjectUid};
use crate::time::UnixSeconds;

/// The holder of an API key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The key's public id.
    pub key: KeyId,
    /// The name of the project it belongs to.
    pub project: ProjectId,
    /// The identity of that project, independent of its name; services store its data under it.
    pub project_uid: ProjectUid,
    /// The project's plan.
    pub plan: Plan,
    /// The key's permissions.
    pub scopes: Scopes,
    /// The deployment the key belongs to.
    pub environment: Environment,
}

/// The facts that the gateway certifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The request's id, as in the access log and `X-Request-Id`.
    pub request_id: String,
    /// The client's address as the gateway saw it.
    pub client: IpAddr,
    /// The project of the requested site; absent on the platform's own hosts.
    pub site_project: Option<ProjectId>,
    /// The caller; absent if the site needs no key.
    pub caller: Option<Caller>,
    /// When the gateway signed, by its clock.
    pub issued_at: UnixSeconds,
}
