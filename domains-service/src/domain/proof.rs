//! What an owner must put into DNS: a CNAME target that is the project's alone, and a text where ownership is contested.
//!
//! Both derive from the platform's secret and the project's salt, so they are stateless, cannot be guessed, and are
//! never used again: a dangling CNAME of a deleted project leads nowhere, not even to a new project of the same id.

use aws_lc_rs::hmac;
use chassis::secret::Secret;
use contract::hostname::Hostname;

/// 80 bits in base32: too many to guess, short enough to read aloud.
const TARGET_CHARACTERS: usize = 16;

/// 130 bits in base32.
const TEXT_CHARACTERS: usize = 26;

/// The label below the domain that holds the ownership text.
pub(crate) const TEXT_LABEL: &str = "_edge-verify";

/// The lifetime every record is suggested with, in seconds: the specification's.
pub(crate) const TTL_SECONDS: u32 = 3_600;

/// Derives proofs.
pub(crate) struct Prover {
    key: hmac::Key,
    zone: Hostname,
}

impl Prover {
    /// With the platform's secret and the zone that holds the targets.
    pub(crate) fn new(platform_secret: &Secret, zone: Hostname) -> Self {
        let secret = platform_secret.derive("prove ownership");
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, secret.reveal()), zone }
    }

    /// The name a project's custom domains must point at. The zone's length is checked at start, so it always fits.
    pub(crate) fn target(&self, salt: &str) -> Hostname {
        let label = self.text(&["target", salt], TARGET_CHARACTERS);
        self.zone.child(&label).unwrap_or_else(|_| self.zone.clone())
    }

    /// The text below [`TEXT_LABEL`] that proves a name for a project; worth nothing for another name or project.
    pub(crate) fn ownership_text(&self, salt: &str, name: &Hostname) -> String {
        format!("edge-verify={}", self.text(&["text", salt, name.as_str()], TEXT_CHARACTERS))
    }

    fn text(&self, parts: &[&str], characters: usize) -> String {
        // No part contains a line feed, so no two lists of parts give the same text.
        let tag = hmac::sign(&self.key, parts.join("\n").as_bytes());
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

    fn prover(secret: u8) -> Prover {
        Prover::new(&Secret::new(vec![secret; 32]), "edge.tollhouse.dev".parse().unwrap())
    }

    #[test]
    fn base32_is_that_of_the_rfc() {
        assert_eq!(base32(b"fooba").collect::<String>(), "mzxw6ytb");
    }

    #[test]
    fn targets_are_unique_to_the_project_and_stable() {
        let target = prover(1).target("salt-a");
        // Customers have it in their DNS: another derivation breaks every domain.
        assert_eq!(target.as_str(), "h2novbv6xcyqyika.edge.tollhouse.dev");
        assert_ne!(target, prover(1).target("salt-b"));
        assert_ne!(target, prover(2).target("salt-a"));
    }

    #[test]
    fn a_text_proves_one_name_for_one_project() {
        let (one, other) = ("a.customer.com".parse().unwrap(), "b.customer.com".parse().unwrap());
        let text = prover(1).ownership_text("salt-a", &one);
        // Customers have it in their DNS, as above.
        assert_eq!(text, "edge-verify=oaod47pu25zjpj35o35iq67qbz");
        assert_ne!(text, prover(1).ownership_text("salt-a", &other));
        assert_ne!(text, prover(1).ownership_text("salt-b", &one));
    }
}
