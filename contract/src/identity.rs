//! Who a request turned out to be, signed by the gateway and verified by services.
//!
//! The gateway authenticates; services authorise. What passes between them is a [token](crate::token). A request without a
//! valid one did not come through the gateway and is refused.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::key::{Environment, KeyId, Scopes};
use crate::plan::Plan;
use crate::project::{ProjectId, ProjectUid};
use crate::time::UnixSeconds;

/// The holder of an API key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The key's public name.
    pub key: KeyId,
    /// The name of the project it belongs to.
    pub project: ProjectId,
    /// The identity of that project, whatever it is called: services keep its data under it.
    pub project_uid: ProjectUid,
    /// The project's plan.
    pub plan: Plan,
    /// What the key may do.
    pub scopes: Scopes,
    /// The deployment the key belongs to.
    pub environment: Environment,
}

/// What the gateway vouches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The request's id, as in the access log and `X-Request-Id`.
    pub request_id: String,
    /// The client's address as the gateway saw it.
    pub client: IpAddr,
    /// The project whose site was asked; absent on the platform's own hosts.
    pub site_project: Option<ProjectId>,
    /// The caller; absent where the site needs no key.
    pub caller: Option<Caller>,
    /// When the gateway signed, by its clock.
    pub issued_at: UnixSeconds,
}
