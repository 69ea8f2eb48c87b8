//! Sealing: how private keys rest on disk and travel to the edge.
//!
//! AES-256-GCM with a random 96-bit nonce before the ciphertext, in base64. The additional data binds a sealed text to
//! its place (a hostname), so that one moved elsewhere does not open.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::secret::Secret;

/// The key-encryption key.
pub struct SealingKey(LessSafeKey);

/// A sealed text that does not open: damaged, of another key, or of another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sealed key does not open: it is damaged, or was sealed with another key or for another name")]
pub struct DoesNotOpen;

impl SealingKey {
    /// The key derived from a secret for this use.
    ///
    /// # Errors
    /// Never in practice: the derived key always has the cipher's length.
    pub fn new(secret: &Secret) -> anyhow::Result<Self> {
        let key = UnboundKey::new(&AES_256_GCM, secret.derive("seal private keys").reveal())
            .map_err(|_| anyhow::anyhow!("the sealing key has the wrong length"))?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Seals `plain` for `place`.
    ///
    /// # Errors
    /// When the operating system gives no randomness for the nonce.
    pub fn seal(&self, plain: &[u8], place: &str) -> anyhow::Result<String> {
        let nonce = crate::random::bytes::<NONCE_LEN>()?;
        let mut sealed = plain.to_vec();
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(place.as_bytes()), &mut sealed)
            .map_err(|_| anyhow::anyhow!("sealing failed"))?;
        let mut text = nonce.to_vec();
        text.extend_from_slice(&sealed);
        Ok(STANDARD.encode(text))
    }

    /// Opens what was sealed for `place`.
    ///
    /// # Errors
    /// [`DoesNotOpen`] whatever is wrong: an attacker learns nothing from the difference.
    pub fn open(&self, sealed: &str, place: &str) -> Result<Zeroizing<Vec<u8>>, DoesNotOpen> {
        let bytes = STANDARD.decode(sealed).map_err(|_| DoesNotOpen)?;
        let (nonce, text) = bytes.split_at_checked(NONCE_LEN).ok_or(DoesNotOpen)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| DoesNotOpen)?;
        let mut text = Zeroizing::new(text.to_vec());
        let length =
            self.0.open_in_place(nonce, Aad::from(place.as_bytes()), &mut text).map_err(|_| DoesNotOpen)?.len();
        text.truncate(length);
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_in_its_place_alone() {
        let key = SealingKey::new(&Secret::new(vec![7; 32])).unwrap();
        let sealed = key.seal(b"private", "shop.example.com").unwrap();
        assert_eq!(&**key.open(&sealed, "shop.example.com").unwrap(), b"private");
        assert!(key.open(&sealed, "evil.example.com").is_err());
        assert!(SealingKey::new(&Secret::new(vec![8; 32])).unwrap().open(&sealed, "shop.example.com").is_err());
        assert!(key.open("", "shop.example.com").is_err());
        assert!(!sealed.contains("private"));
    }
}
