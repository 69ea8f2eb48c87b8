//! Signatures: HMAC-SHA-256 over id, time and body, with a secret shared with the receiver.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use contract::time::UnixSeconds;
use zeroize::Zeroizing;

use crate::secret::Secret;

/// Prefix of a secret's text form.
const PREFIX: &str = "whsec_";

/// Prefix of a signature of this kind.
const VERSION: &str = "v1";

/// Length of a secret in bytes, from the specification.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The secret of one endpoint. It prints as dots.
#[derive(Clone, Debug)]
pub struct SigningSecret(Secret);

/// The text is not a signing secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a signing secret is whsec_ followed by 24 to 64 bytes in base64")]
pub struct InvalidSigningSecret;

impl SigningSecret {
    /// 32 fresh random bytes.
    ///
    /// # Errors
    /// If the operating system returns no randomness.
    pub fn generate() -> anyhow::Result<Self> {
        Ok(Self(Secret::generate()?))
    }

    /// Parses the form that receivers get: `whsec_` and base64.
    ///
    /// # Errors
    /// [`InvalidSigningSecret`] for any other text.
    pub fn parse(text: &str) -> Result<Self, InvalidSigningSecret> {
        let encoded = text.strip_prefix(PREFIX).ok_or(InvalidSigningSecret)?;
        Self::from_bytes(STANDARD.decode(encoded).map_err(|_| InvalidSigningSecret)?)
    }

    /// From the bytes, as stored sealed.
    ///
    /// # Errors
    /// [`InvalidSigningSecret`] if there are fewer than 24 or more than 64.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, InvalidSigningSecret> {
        if SECRET_BYTES.contains(&bytes.len()) { Ok(Self(Secret::new(bytes))) } else { Err(InvalidSigningSecret) }
    }

    /// The bytes.
    pub fn reveal(&self) -> &[u8] {
        self.0.reveal()
    }

    /// The form that receivers get.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{PREFIX}{}", STANDARD.encode(self.reveal())))
    }

    /// The signature of a message sent at `at`: `v1,` and base64.
    pub fn sign(&self, id: &str, at: UnixSeconds, body: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, self.reveal()));
        context.update(format!("{id}.{}.", at.0).as_bytes());
        context.update(body);
        format!("{VERSION},{}", STANDARD.encode(context.sign()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_equals_that_of_other_implementations() {
        // The test vector of the published libraries.
        let secret = SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature =
            secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", UnixSeconds(1_614_265_330), br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn every_part_of_a_message_is_signed() {
        let secret = SigningSecret::generate().unwrap();
        let signature = secret.sign("msg_1", UnixSeconds(10), b"body");
        assert_ne!(signature, secret.sign("msg_2", UnixSeconds(10), b"body"));
        assert_ne!(signature, secret.sign("msg_1", UnixSeconds(11), b"body"));
        assert_ne!(signature, secret.sign("msg_1", UnixSeconds(10), b"bodi"));
        assert_ne!(signature, SigningSecret::generate().unwrap().sign("msg_1", UnixSeconds(10), b"body"));
    }

    #[test]
    fn secrets_read_back_and_do_not_print() {
        let secret = SigningSecret::generate().unwrap();
        let text = secret.to_text();
        assert!(text.starts_with("whsec_"));
        assert_eq!(SigningSecret::parse(&text).unwrap().reveal(), secret.reveal());
        assert_eq!(format!("{secret:?}"), "SigningSecret(Secret(…))");
        for wrong in ["", "whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_***"] {
            assert!(SigningSecret::parse(wrong).is_err(), "{wrong}");
        }
    }
}
