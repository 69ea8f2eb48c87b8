//! What a gateway proves itself with.

use chassis::config::Section;
use chassis::secret::Secret;

/// What the file of a credential might be called.
const EXAMPLE: &str = "/run/secrets/gateway-1.key";

/// What a gateway proves itself with.
#[derive(Clone, Debug)]
pub enum Credential {
    /// A credential of its own.
    Own(Secret),
    /// The secret of the platform, which opens everything: in installations from before gateways had credentials.
    Platform(Secret),
}

impl Credential {
    /// The token for the control plane.
    #[must_use]
    pub fn token(&self) -> Secret {
        match self {
            Self::Own(credential) => credential.clone(),
            Self::Platform(secret) => chassis::guard::edge_token(secret),
        }
    }
}

/// A credential of its own wins over the platform's secret, so that one can be added before the other is taken away.
pub(super) fn read(root: &Section<'_>) -> Option<Credential> {
    let (own, shared) = (root.secret("credential"), root.secret("secret"));
    match (own?, shared?) {
        (Some(own), _) => Some(Credential::Own(own)),
        (None, Some(shared)) => Some(Credential::Platform(shared)),
        (None, None) => {
            root.missing("credential_file", &format!("{EXAMPLE:?}"));
            None
        }
    }
}
