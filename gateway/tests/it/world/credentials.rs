//! Secrets that this control plane gives to gateways, as the shipped one does: a credential for each, and sealed keys
//! that sign identities and seal session tickets. No gateway has a secret of the platform.

use chassis::guard::pass;
use chassis::seal::SealingKey;
use chassis::secret::Secret;
use contract::feed::Frame;
use contract::keyring::{Generation, KEYRING_PLACE, Keyring};
use contract::time::UnixSeconds;
use contract::token::{KeySet, SigningKey};
use contract::trust::PassFor;

use super::SEALING_SECRET;
use super::control::line;

/// Registered gateways, numbered from 0: more than any test starts.
const ON_RECORD: u8 = 16;

/// The credential of a gateway.
pub(crate) fn credential(gateway: usize) -> String {
    format!("the credential of gateway {gateway} of these tests")
}

/// The gateway of a request's credential.
pub(super) fn gateway_with(authorization: Option<&str>) -> Option<u8> {
    let token = authorization?.strip_prefix("Bearer ")?;
    let has = |gateway: &u8| *Secret::parse(&credential((*gateway).into())).unwrap().to_token() == *token;
    (0..ON_RECORD).find(has)
}

/// The keys that verify gateways' identities.
pub(crate) fn identities() -> KeySet {
    (0..ON_RECORD).map(|gateway| signing(gateway).public().clone()).collect()
}

/// The name of a registered gateway.
pub(crate) fn name(gateway: usize) -> String {
    format!("edge-{gateway}")
}

/// An operator's pass for the admin listener of gateway 0.
pub(crate) fn operator_pass(now: UnixSeconds) -> String {
    pass(&operators(), &PassFor::gateway(&name(0)), now)
}

/// The key that signs passes.
pub(crate) fn operators() -> SigningKey {
    SigningKey::from_seed(&[99; 32]).unwrap()
}

/// The keys of a gateway as they are sent.
pub(super) fn keys_of(gateway: u8) -> String {
    let generation =
        Generation { number: 1, signs_from: UnixSeconds(0), identity: [100 + gateway; 32], tickets: [98; 32] };
    let passes = [operators().public().clone()].into_iter().collect();
    let gateway = name(gateway.into());
    sealed(&Keyring { gateway, generations: vec![generation], identities: identities(), passes })
}

/// A keyring, sealed for sending.
pub(crate) fn sealed(keyring: &Keyring) -> String {
    let sealing = SealingKey::new(&Secret::parse(SEALING_SECRET).unwrap()).unwrap();
    let text = serde_json::to_vec(keyring).unwrap();
    line(&Frame::Keyring { sealed: sealing.seal(&text, KEYRING_PLACE).unwrap() })
}

fn signing(gateway: u8) -> SigningKey {
    SigningKey::from_seed(&[100 + gateway; 32]).unwrap()
}
