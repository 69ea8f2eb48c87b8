//! What the control plane tells services: whose word they may believe, and which projects there are.
//!
//! A service asks with a credential of its own and needs no secret of the platform. It keeps what it was told, so that it
//! serves while the control plane is away.

use serde::{Deserialize, Serialize};

use crate::project::ProjectUid;
use crate::token::KeySet;

/// Where the control plane's internal listener answers with [`Trust`].
pub const TRUST_PATH: &str = "/internal/trust";

/// Where it gives operators passes for services: [`PassRequest`], answered with [`Pass`].
pub const PASSES_PATH: &str = "/internal/passes";

/// The service of orders, as it is on record.
pub const ORDERS_SERVICE: &str = "orders-service";

/// What operators' passes for the admin listeners of gateways name in place of a service. No service is called so.
pub const GATEWAYS: &str = "gateways";

/// Whose word a service may believe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trust {
    /// Of gateways, about callers.
    pub gateways: KeySet,
    /// Of the control plane, about operators.
    pub operators: KeySet,
}

/// Which service an operator wants to speak to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassRequest {
    /// As it is on record; [`GATEWAYS`] for the admin listeners of all gateways.
    pub service: String,
}

/// An operator's way into one service: a token of less than a minute.
#[derive(Clone, Serialize, Deserialize)]
pub struct Pass {
    /// `Authorization: Bearer <pass>`.
    pub pass: String,
}

/// `aud` of passes for a service. No upstream has such a name, so no identity is a pass and no pass an identity.
pub fn pass_audience(service: &str) -> String {
    format!("operators@{service}")
}

/// Where the control plane says whether there is a project: 204, or 404 `project_not_found`.
pub fn known_project_path(project: &ProjectUid) -> String {
    format!("/internal/known-projects/{project}")
}
