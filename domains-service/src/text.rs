//! Times and digests as text.

use chassis::guard;
use chassis::secret::Secret;
pub(crate) use domains_api::moment::{rfc3339, rfc3339_seconds};

/// A stored credential: SHA-256 in hexadecimal.
pub(crate) fn digest_of(credential: &Secret) -> String {
    hexadecimal(guard::digest_of(&credential.to_token()))
}

/// A digest in hexadecimal.
pub(crate) fn hexadecimal(digest: [u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
