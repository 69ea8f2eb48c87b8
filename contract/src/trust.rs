//! What the control plane tells services: whose word they may believe, and which projects there are.
//!
//! A service asks with a credential of its own and needs no secret of the platform. It keeps what it was told, so that it
//! serves while the control plane is away.

use serde::{Deserialize, Serialize};

use crate::project::ProjectUid;
use crate::token::KeySet;

/// Where the control plane's internal listener answers with [`Trust`].
pub const TRUST_PATH: &str = "/internal/trust";

/// Where it gives operators passes: [`PassFor`], answered with [`Pass`].
pub const PASSES_PATH: &str = "/internal/passes";

/// The control plane, as certificates name it.
pub const CONTROL_PLANE: &str = "domains-service";

/// The service of orders, as it is on record.
pub const ORDERS_SERVICE: &str = "orders-service";

/// Whose word a service may believe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trust {
    /// Of gateways, about callers.
    pub gateways: KeySet,
    /// Of the control plane, about operators.
    pub operators: KeySet,
}

/// Bytes of a gateway's or a service's name.
pub const NODE_NAME_BYTES_MAX: usize = 63;

/// Whether a gateway or a service may be called this: `a-z`, digits, hyphens and full stops.
pub fn is_node_name(name: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    (1..=NODE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_good)
}

/// Which listener an operator wants to speak to: one pass opens one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassFor {
    /// The internal listener of the service with this name on record.
    Service(String),
    /// The admin listener of the gateway with this name on record, at each of its processes.
    Gateway(String),
}

impl PassFor {
    /// The service with this name on record.
    pub fn service(name: &str) -> Self {
        Self::Service(name.to_owned())
    }

    /// The gateway with this name on record.
    pub fn gateway(name: &str) -> Self {
        Self::Gateway(name.to_owned())
    }

    /// The name on record.
    pub fn name(&self) -> &str {
        match self {
            Self::Service(name) | Self::Gateway(name) => name,
        }
    }

    /// `aud` of the pass. No upstream has such a name, so no identity is a pass and no pass an identity; and no service has
    /// a name with a slash.
    pub fn audience(&self) -> String {
        match self {
            Self::Service(name) => format!("operators@{name}"),
            Self::Gateway(name) => format!("operators@gateway/{name}"),
        }
    }
}

/// An operator's way into one service or one gateway: a token of less than a minute.
#[derive(Clone, Serialize, Deserialize)]
pub struct Pass {
    /// `Authorization: Bearer <pass>`.
    pub pass: String,
}

/// Where the control plane says whether there is a project: 204, or 404 `project_not_found`.
pub fn known_project_path(project: &ProjectUid) -> String {
    format!("/internal/known-projects/{project}")
}
