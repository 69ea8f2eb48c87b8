//! Derives the key by which each gateway signs identities from the secret of a generation. No I/O.

use std::collections::HashMap;

use chassis::guard;
use chassis::secret::Secret;
use contract::keyring::Generation;
use contract::time::UnixSeconds;
use contract::token::{KeySet, SEED_BYTES, SigningKey};
use serde::{Deserialize, Serialize};

use crate::store::credentials::Credential;
use crate::store::gateways::SealedGeneration;

/// The secrets of one generation. They rest sealed.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Master {
    pub(crate) number: i64,
    pub(crate) signs_from: UnixSeconds,
    /// The secret from which each gateway's identity key derives. It is sent to no gateway.
    pub(crate) identity: [u8; SEED_BYTES],
    /// The secret from which the keys of session tickets derive, at every gateway.
    pub(crate) tickets: [u8; SEED_BYTES],
}

impl Master {
    /// The private key with which the gateway that has this credential signs identities.
    fn seed(&self, gateway: &Credential) -> anyhow::Result<[u8; SEED_BYTES]> {
        let label = format!("identities of the gateway {} with {}", gateway.name, gateway.digest);
        Ok(Secret::new(self.identity.to_vec()).derive(&label).reveal().try_into()?)
    }

    /// The keys of the gateway with this credential.
    fn generation(&self, gateway: &Credential) -> anyhow::Result<Generation> {
        let identity = self.seed(gateway)?;
        Ok(Generation { number: self.number, signs_from: self.signs_from, identity, tickets: self.tickets })
    }
}

/// A version of all keys: it changes with every generation, its tickets, and the registered gateways.
pub(crate) type Version = [u8; 32];

/// The keys of all registered gateways.
#[derive(Default)]
pub(crate) struct Identities {
    pub(crate) version: Version,
    masters: Vec<Master>,
    gateways: Vec<Credential>,
    /// The keys that verify identities of all gateways.
    pub(crate) public: KeySet,
    /// The gateways by the names of their public keys.
    names: HashMap<String, String>,
}

impl Identities {
    /// The keys of these gateways in every generation.
    pub(crate) fn derive(version: Version, masters: Vec<Master>, gateways: Vec<Credential>) -> anyhow::Result<Self> {
        let mut names = HashMap::new();
        let mut public = Vec::new();
        for master in &masters {
            for gateway in &gateways {
                let key = SigningKey::from_seed(&master.seed(gateway)?)?.public().clone();
                names.insert(key.kid.clone(), gateway.name.clone());
                public.push(key);
            }
        }
        Ok(Self { version, masters, gateways, public: public.into_iter().collect(), names })
    }

    /// The same without this gateway's keys and without a version, so that the next use derives it again.
    pub(crate) fn without(&self, gateway: &str) -> Self {
        let others = self.names.iter().filter(|(_, named)| *named != gateway);
        let names = others.map(|(kid, named)| (kid.clone(), named.clone())).collect();
        Self { names, public: self.public.clone(), ..Self::default() }
    }

    /// Whether the gateway with this credential is registered.
    pub(crate) fn is_good(&self, gateway: &Credential) -> bool {
        self.gateways.contains(gateway)
    }

    /// The keys of the gateway with this credential.
    pub(crate) fn generations(&self, gateway: &Credential) -> anyhow::Result<Vec<Generation>> {
        self.masters.iter().map(|master| master.generation(gateway)).collect()
    }

    /// The gateway that signs with the key of this name.
    pub(crate) fn gateway(&self, kid: &str) -> Option<&str> {
        self.names.get(kid).map(String::as_str)
    }
}

/// The version of these generations for these gateways.
pub(crate) fn version_of(stored: &[SealedGeneration], gateways: &[Credential]) -> Version {
    let stored = stored.iter().map(|generation| format!("{}\n", generation.sealed));
    let gateways = gateways.iter().map(|gateway| format!("{} {}\n", gateway.name, gateway.digest));
    guard::digest_of(&stored.chain(gateways).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::credentials::Kind;

    fn credential(gateway: &str, digest: &str) -> Credential {
        let (name, digest) = (gateway.to_owned(), digest.to_owned());
        Credential { kind: Kind::Gateway, name, digest, expires_at: None }
    }

    #[test]
    fn every_gateway_and_every_credential_has_its_own_key() {
        let master = Master { number: 1, signs_from: UnixSeconds(0), identity: [1; 32], tickets: [2; 32] };
        let other = Master { identity: [3; 32], ..master.clone() };
        let one = credential("edge-1", "aa");
        let seed = master.seed(&one).unwrap();
        assert_eq!(seed, master.seed(&one).unwrap());
        assert_ne!(seed, master.seed(&credential("edge-2", "aa")).unwrap());
        assert_ne!(seed, master.seed(&credential("edge-1", "bb")).unwrap(), "a new credential brings a new key");
        assert_ne!(seed, other.seed(&one).unwrap());
        let sent = serde_json::to_string(&master.generation(&one).unwrap()).unwrap();
        assert!(!sent.contains(&serde_json::to_string(&master.identity).unwrap()), "the secret stays here");
    }

    #[test]
    fn a_refused_gateways_signatures_are_invalid_and_the_next_read_derives_all_keys_again() {
        let master = Master { number: 1, signs_from: UnixSeconds(0), identity: [1; 32], tickets: [2; 32] };
        let gateways = [credential("edge-1", "aa"), credential("edge-2", "bb")];
        let all = Identities::derive([1; 32], vec![master.clone()], gateways.to_vec()).unwrap();
        let kids = gateways.each_ref().map(|gateway| {
            let key = SigningKey::from_seed(&master.seed(gateway).unwrap()).unwrap();
            key.public().kid.clone()
        });
        let named = |identities: &Identities| kids.each_ref().map(|kid| identities.gateway(kid).map(str::to_owned));
        assert_eq!(named(&all), [Some("edge-1".to_owned()), Some("edge-2".to_owned())]);
        let rest = all.without("edge-1");
        assert_eq!(named(&rest), [None, Some("edge-2".to_owned())]);
        assert!(rest.version != all.version && !rest.is_good(&gateways[0]));
    }

    #[test]
    fn the_version_changes_with_generations_tickets_and_gateways() {
        let stored =
            |sealed: &str| SealedGeneration { number: 1, sealed: sealed.to_owned(), signs_from: UnixSeconds(0) };
        let (one, two) = (credential("edge-1", "aa"), credential("edge-2", "bb"));
        let version = version_of(&[stored("x")], std::slice::from_ref(&one));
        for other in [
            version_of(&[stored("y")], std::slice::from_ref(&one)),
            version_of(&[stored("x"), stored("x")], std::slice::from_ref(&one)),
            version_of(&[stored("x")], &[one.clone(), two]),
            version_of(&[stored("x")], &[credential("edge-1", "bb")]),
        ] {
            assert_ne!(version, other);
        }
    }
}
