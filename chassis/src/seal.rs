//! Sealing: encryption of private keys on disk and on their way to the edge.
//!
//! AES-256-GCM with a random 96-bit nonce before the ciphertext, in base64, after the name of the sealing secret. The
//! additional data binds a sealed text to its place (a hostname), so that it cannot be opened elsewhere.
//!
//! A platform has one sealing secret, and during a rotation an older one too: the newest seals, all open. The name
//! identifies the secret that a text needs without revealing anything about it.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::secret::Secret;

/// Secrets that may open at the same time: one that seals, and those being replaced.
pub const SEALING_SECRETS_MAX: usize = 4;

/// Length of a secret's name in hexadecimal digits.
pub const NAME_BYTES: usize = 16;

/// The sealing secrets of a platform, the newest first.
#[derive(Clone, Debug)]
pub struct SealingSecrets(Vec<Secret>);

impl SealingSecrets {
    /// Parses one secret per line, as [`Secret::parse`] does; the first one seals, all open.
    ///
    /// # Errors
    /// If there is none, there are too many, or one is too short.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let secrets = lines.map(Secret::parse).collect::<anyhow::Result<Vec<_>>>()?;
        if secrets.is_empty() {
            // For its error message.
            Secret::parse("")?;
        }
        anyhow::ensure!(
            secrets.len() <= SEALING_SECRETS_MAX,
            "there are {} sealing secrets (one per line), but at most {SEALING_SECRETS_MAX} are allowed: keep the first \
             line, and of the others those that `tollhouse status` lists as needed",
            secrets.len()
        );
        Ok(Self(secrets))
    }
}

impl From<Secret> for SealingSecrets {
    fn from(secret: Secret) -> Self {
        Self(vec![secret])
    }
}

/// The key-encryption key, and older ones.
pub struct SealingKey {
    newest: NamedKey,
    older: Vec<NamedKey>,
}

struct NamedKey {
    name: String,
    key: LessSafeKey,
}

impl NamedKey {
    fn new(secret: &Secret) -> anyhow::Result<Self> {
        let key = UnboundKey::new(&AES_256_GCM, secret.derive("seal private keys").reveal())
            .map_err(|_| anyhow::anyhow!("the sealing key has the wrong length"))?;
        let name = secret.derive("name of a sealing secret");
        let name = name.reveal().iter().take(NAME_BYTES / 2).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { name, key: LessSafeKey::new(key) })
    }

    fn open(&self, bytes: &[u8], place: &str) -> Result<Zeroizing<Vec<u8>>, DoesNotOpen> {
        let (nonce, text) = bytes.split_at_checked(NONCE_LEN).ok_or(DoesNotOpen)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| DoesNotOpen)?;
        let mut text = Zeroizing::new(text.to_vec());
        let opened = self.key.open_in_place(nonce, Aad::from(place.as_bytes()), &mut text);
        let length = opened.map_err(|_| DoesNotOpen)?.len();
        text.truncate(length);
        Ok(text)
    }
}

/// A sealed text that cannot be opened: damaged, sealed with another secret, or for another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot open the sealed key: it is damaged, or was sealed with another secret or for another name")]
pub struct DoesNotOpen;

impl SealingKey {
    /// The key derived from one secret for this use.
    ///
    /// # Errors
    /// Never in practice: the derived key always has the cipher's length.
    pub fn new(secret: &Secret) -> anyhow::Result<Self> {
        Self::of(&secret.clone().into())
    }

    /// The keys derived from all secrets.
    pub fn of(secrets: &SealingSecrets) -> anyhow::Result<Self> {
        let mut keys = secrets.0.iter().map(NamedKey::new);
        let newest = keys.next().unwrap_or_else(|| Err(anyhow::anyhow!("no sealing secret is set")))?;
        Ok(Self { newest, older: keys.collect::<anyhow::Result<_>>()? })
    }

    /// The name of the sealing secret.
    pub fn newest(&self) -> &str {
        &self.newest.name
    }

    /// The names of the other secrets.
    pub fn older(&self) -> impl Iterator<Item = &str> {
        self.older.iter().map(|key| key.name.as_str())
    }

    /// Whether the secret of this name is present.
    pub fn has(&self, name: &str) -> bool {
        name == self.newest() || self.older().any(|older| older == name)
    }

    /// Whether the secret that sealed a text is present.
    pub fn has_secret_of(&self, sealed: &str) -> bool {
        self.has(name_in(sealed))
    }

    /// Seals `plain` for `place` with the newest secret.
    ///
    /// # Errors
    /// If the operating system returns no randomness for the nonce.
    pub fn seal(&self, plain: &[u8], place: &str) -> anyhow::Result<String> {
        let nonce = crate::random::bytes::<NONCE_LEN>()?;
        let mut sealed = plain.to_vec();
        self.newest
            .key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(place.as_bytes()), &mut sealed)
            .map_err(|_| anyhow::anyhow!("sealing failed"))?;
        let mut text = nonce.to_vec();
        text.extend_from_slice(&sealed);
        Ok(format!("{}.{}", self.newest.name, STANDARD.encode(text)))
    }

    /// Opens a text sealed for `place`.
    ///
    /// # Errors
    /// [`DoesNotOpen`] for every reason: the difference would help an attacker.
    pub fn open(&self, sealed: &str, place: &str) -> Result<Zeroizing<Vec<u8>>, DoesNotOpen> {
        let (name, text) = parts(sealed);
        let bytes = STANDARD.decode(text).map_err(|_| DoesNotOpen)?;
        let key = std::iter::once(&self.newest).chain(&self.older).find(|key| key.name == name);
        key.ok_or(DoesNotOpen)?.open(&bytes, place)
    }

    /// Seals a text again with the newest secret.
    ///
    /// # Errors
    /// If it cannot be opened or sealed.
    pub fn reseal(&self, sealed: &str, place: &str) -> anyhow::Result<String> {
        self.seal(&self.open(sealed, place)?, place)
    }
}

/// The name of the secret that a sealed text needs; empty if the text has none and cannot be opened.
pub fn name_in(sealed: &str) -> &str {
    parts(sealed).0
}

/// Name and base64. Base64 contains no full stop.
fn parts(sealed: &str) -> (&str, &str) {
    sealed.split_once('.').unwrap_or(("", sealed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: &str = "shop.example.com";

    fn keys(text: &str) -> SealingKey {
        SealingKey::of(&SealingSecrets::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn a_sealed_text_opens_in_its_place_only() {
        let key = SealingKey::new(&Secret::new(vec![7; 32])).unwrap();
        let sealed = key.seal(b"private", PLACE).unwrap();
        assert_eq!(&**key.open(&sealed, PLACE).unwrap(), b"private");
        assert!(key.open(&sealed, "evil.example.com").is_err());
        assert!(SealingKey::new(&Secret::new(vec![8; 32])).unwrap().open(&sealed, PLACE).is_err());
        assert!(key.open("", PLACE).is_err());
        assert!(!sealed.contains("private"));
    }

    /// `private` for [`PLACE`], sealed by another program like every version, with the secret of 32 sevens.
    const STORED: &str = "3a64c51afc359ee5.AAECAwQFBgcICQoL20nEKyor9WTZED8fA0d4CAZUb62d3a8=";

    #[test]
    fn a_text_sealed_by_another_version_opens() {
        let key = SealingKey::new(&Secret::new(vec![7; 32])).unwrap();
        assert_eq!(key.newest(), name_in(STORED));
        assert_eq!(&**key.open(STORED, PLACE).unwrap(), b"private");
        assert_eq!(key.open(parts(STORED).1, PLACE), Err(DoesNotOpen), "it names no secret");
        let damaged = STORED.replace("AAEC", "AAED");
        assert_eq!(key.open(&damaged, PLACE), Err(DoesNotOpen));
    }

    #[test]
    fn sealing_twice_gives_different_texts() {
        let key = SealingKey::new(&Secret::new(vec![7; 32])).unwrap();
        assert_ne!(key.seal(b"private", PLACE).unwrap(), key.seal(b"private", PLACE).unwrap(), "a nonce serves once");
    }

    #[test]
    fn the_first_secret_seals_and_all_open() {
        let (old, new) = ("the old secret of this test", "the new secret of this test");
        let (before, during, after) = (keys(old), keys(&format!("{new}\n{old}\n")), keys(new));
        let sealed = before.seal(b"private", PLACE).unwrap();
        assert_eq!((name_in(&sealed), name_in(&sealed).len()), (before.newest(), NAME_BYTES));
        assert_eq!(&**during.open(&sealed, PLACE).unwrap(), b"private");
        assert!(during.older().eq([before.newest()]));
        assert!(after.open(&sealed, PLACE).is_err());
        assert!(during.has_secret_of(&sealed) && !after.has_secret_of(&sealed));
        let resealed = during.reseal(&sealed, PLACE).unwrap();
        assert_eq!(name_in(&resealed), after.newest());
        assert_eq!(&**after.open(&resealed, PLACE).unwrap(), b"private");
        assert!(before.open(&resealed, PLACE).is_err());
        assert!(during.reseal(&sealed, "evil.example.com").is_err());
    }

    #[test]
    fn there_are_one_to_four_secrets() {
        assert!(SealingSecrets::parse("\n \n").unwrap_err().to_string().contains("openssl rand"));
        assert!(SealingSecrets::parse("a secret that is long enough\nshort").is_err());
        let five: Vec<String> = (0..5).map(|number| format!("secret number {number} of this test")).collect();
        assert!(SealingSecrets::parse(&five[..4].join("\n")).is_ok());
        assert!(SealingSecrets::parse(&five.join("\n")).unwrap_err().to_string().contains("at most 4"));
    }
}
