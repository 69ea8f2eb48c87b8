//! Checks of an entity beyond the types of its parts.

use super::Entity;
use crate::certificate::Challenge;
use crate::hostname::Hostname;

impl Entity {
    /// Checks rules beyond the types of its parts. The control plane checks before it sends an entity, and a gateway
    /// before it accepts one.
    ///
    /// # Errors
    /// The broken rule.
    pub fn check(&self) -> Result<(), InvalidEntity> {
        match self {
            Self::Site(site) if site.redirect.as_ref().is_some_and(|redirect| redirect.to == site.hostname) => {
                Err(InvalidEntity::Loop(site.hostname.clone()))
            }
            Self::Challenge(challenge) if !Challenge::is_token(&challenge.token) => {
                Err(InvalidEntity::Token(challenge.hostname.clone()))
            }
            Self::Site(_) | Self::Challenge(_) | Self::Project(_) | Self::Key(_) | Self::Certificate(_) => Ok(()),
        }
    }
}

/// The broken rule of an [`Entity`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEntity {
    /// A site that redirects to itself.
    #[error("{0} redirects to itself")]
    Loop(Hostname),
    /// A challenge whose token could not be part of a path.
    #[error("a challenge for {0} has a malformed token")]
    Token(Hostname),
}
