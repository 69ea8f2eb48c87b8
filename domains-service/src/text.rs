//! Moments and digests as text.

use chassis::guard;
use chassis::secret::Secret;
use contract::time::{UnixMillis, UnixSeconds};

/// A moment in RFC 3339, UTC.
pub(crate) fn rfc3339(at: UnixMillis) -> String {
    jiff::Timestamp::from_millisecond(at.0).unwrap_or_default().to_string()
}

/// A moment in RFC 3339, UTC.
pub(crate) fn rfc3339_seconds(at: UnixSeconds) -> String {
    jiff::Timestamp::from_second(at.0).unwrap_or_default().to_string()
}

/// A credential as it rests: SHA-256 in hexadecimal.
pub(crate) fn digest_of(credential: &Secret) -> String {
    hexadecimal(guard::digest_of(&credential.to_token()))
}

/// A digest in hexadecimal.
pub(crate) fn hexadecimal(digest: [u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
