//! Which keys services trust, and which projects exist: published by the control plane.
//!
//! A service requests this with its own credential and needs no platform secret. It keeps the last answer, so that it
//! serves while the control plane is unavailable.

use serde::{Deserialize, Serialize};

use crate::project::ProjectUid;
use crate::token::KeySet;

/// The path of [`Trust`] on the control plane's internal listener.
pub const TRUST_PATH: &str = "/internal/trust";

/// The path where operators get passes: [`PassFor`], answered with [`Pass`].
pub const PASSES_PATH: &str = "/internal/passes";

/// The control plane's name in certificates.
pub const CONTROL_PLANE: &str = "domains-service";

/// The registered name of the orders service.
pub const ORDERS_SERVICE: &str = "orders-service";

/// The keys that a service trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trust {
    /// The gateways' keys, for callers' identities.
    pub gateways: KeySet,
    /// The control plane's keys, for operators' passes.
    pub operators: KeySet,
}

/// The longest name of a gateway or a service, in bytes.
pub const NODE_NAME_BYTES_MAX: usize = 63;

/// Whether this is a valid name of a gateway or service: `a-z`, digits, hyphens and full stops.
pub fn is_node_name(name: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    (1..=NODE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_good)
}

/// The listener that an operator's pass opens: one pass opens one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassFor {
    /// The internal listener of the service with this registered name.
    Service(String),
    /// The admin listener of the gateway with this registered name, at each of its processes.
    Gateway(String),
}

impl PassFor {
    /// The service with this registered name.
    pub fn service(name: &str) -> Self {
        Self::Service(name.to_owned())
    }

    /// The gateway with this registered name.
    pub fn gateway(name: &str) -> Self {
        Self::Gateway(name.to_owned())
    }

    /// The registered name.
    pub fn name(&self) -> &str {
        match self {
            Self::Service(name) | Self::Gateway(name) => name,
        }
    }

    /// `aud` of the pass. No upstream has such a name, so an identity token is never a pass, nor a pass an identity
    /// token; and no service name has a slash.
    pub fn audience(&self) -> String {
        match self {
            Self::Service(name) => format!("operators@{name}"),
            Self::Gateway(name) => format!("operators@gateway/{name}"),
        }
    }
}

/// An operator's access to one service or one gateway: a token valid for less than a minute.
#[derive(Clone, Serialize, Deserialize)]
pub struct Pass {
    /// `Authorization: Bearer <pass>`.
    pub pass: String,
}

/// The path at which the control plane says whether a project exists: 204, or 404 `project_not_found`.
pub fn known_project_path(project: &ProjectUid) -> String {
    format!("/internal/known-projects/{project}")
}
