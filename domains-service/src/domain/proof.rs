//! The DNS records that prove ownership: a CNAME target that only this project has, and a text where ownership is
//! contested.
//!
//! Both derive from a random key that is stored with the project, and from its salt. They cannot be guessed, do not
//! depend on the platform's secret, and are never used again. A dangling CNAME of a deleted project therefore reaches
//! no project, not even a new one of the same name.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use contract::hostname::Hostname;

/// 80 bits in base32: too many to guess, short enough to read aloud.
const TARGET_CHARACTERS: usize = 16;

/// Bytes of a new project's key, and the fewest a stored one has.
pub(crate) const KEY_BYTES: usize = 32;
const KEY_BYTES_MIN: usize = 16;

/// 130 bits in base32.
const TEXT_CHARACTERS: usize = 26;

/// The key from which a project's proofs derive: random, and never changed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ProofKey(Vec<u8>);

impl ProofKey {
    /// Of a new project.
    pub(crate) const fn new(random: Vec<u8>) -> Self {
        Self(random)
    }

    /// Parses the stored text; `None` if it is damaged.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        (bytes.len() >= KEY_BYTES_MIN).then_some(Self(bytes))
    }

    /// Its stored text.
    pub(crate) fn to_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(&self.0)
    }
}

impl std::fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProofKey(…)")
    }
}

/// The inputs of one project's proofs.
#[derive(Clone, Copy)]
pub(crate) struct ProofSource<'p> {
    pub(crate) key: &'p ProofKey,
    pub(crate) salt: &'p str,
}

impl ProofSource<'_> {
    /// The name a project's custom domains must point at, in the `zone` of all targets. The zone's length is checked at
    /// start, so the name always fits.
    pub(crate) fn target(self, zone: &Hostname) -> Hostname {
        zone.child(&self.text(&["target", self.salt], TARGET_CHARACTERS)).unwrap_or_else(|_| zone.clone())
    }

    /// The text below [`verification::TEXT_LABEL`] that proves one name for one project.
    pub(crate) fn ownership_text(self, name: &Hostname) -> String {
        format!("edge-verify={}", self.text(&["text", self.salt, name.as_str()], TEXT_CHARACTERS))
    }

    fn text(self, parts: &[&str], characters: usize) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.key.0);
        // Parts contain no line feed, so different lists of parts never give the same text.
        let tag = hmac::sign(&key, parts.join("\n").as_bytes());
        base32(tag.as_ref()).take(characters).collect()
    }
}

/// RFC 4648 base32 in lower case, without padding.
fn base32(bytes: &[u8]) -> impl Iterator<Item = char> + '_ {
    (0..bytes.len() * 8 / 5).map(|index| {
        let at = index * 5;
        let byte = |offset: usize| u16::from(bytes.get(at / 8 + offset).copied().unwrap_or(0));
        let value = ((byte(0) << 8 | byte(1)) >> (11 - at % 8)) & 31;
        let value = u8::try_from(value).unwrap_or(0);
        char::from(if value < 26 { b'a' + value } else { b'2' + value - 26 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone() -> Hostname {
        "edge.tollhouse.dev".parse().unwrap()
    }

    fn source<'p>(key: &'p ProofKey, salt: &'p str) -> ProofSource<'p> {
        ProofSource { key, salt }
    }

    fn key(byte: u8) -> ProofKey {
        ProofKey::new(vec![byte; KEY_BYTES])
    }

    #[test]
    fn base32_is_that_of_the_rfc() {
        assert_eq!(base32(b"fooba").collect::<String>(), "mzxw6ytb");
    }

    #[test]
    fn targets_are_unique_to_the_project_and_stable() {
        let target = source(&key(1), "salt-a").target(&zone());
        assert_eq!(target, source(&key(1), "salt-a").target(&zone()));
        assert!(target.is_under(&zone()));
        assert_eq!(target.as_str().split('.').next().unwrap().len(), TARGET_CHARACTERS);
        assert_ne!(target, source(&key(1), "salt-b").target(&zone()));
        assert_ne!(target, source(&key(2), "salt-a").target(&zone()));
    }

    #[test]
    fn a_text_proves_one_name_for_one_project() {
        let (one, other) = ("a.customer.com".parse().unwrap(), "b.customer.com".parse().unwrap());
        let text = source(&key(1), "salt-a").ownership_text(&one);
        assert_eq!(text, source(&key(1), "salt-a").ownership_text(&one));
        assert_ne!(text, source(&key(1), "salt-a").ownership_text(&other));
        assert_ne!(text, source(&key(1), "salt-b").ownership_text(&one));
    }

    /// Customers have them in their DNS, for years.
    #[test]
    fn every_version_derives_the_same_records_from_a_stored_key() {
        let read = ProofKey::read(&key(1).to_text()).unwrap();
        let stored = source(&read, "salt-a");
        assert_eq!(stored.target(&zone()).as_str(), "gh4wciqum2achues.edge.tollhouse.dev");
        assert_eq!(stored.ownership_text(&"a.customer.com".parse().unwrap()), "edge-verify=luauaw66wyrlr27bklyiarcq36");
        assert_eq!(ProofKey::read("AAAA"), None);
    }
}
