//! The keys with which gateways sign and seal. The control plane makes and sends them, so that a gateway needs no
//! platform secret.
//!
//! They are sealed with the platform's sealing secret, in transit and at the gateway, like private keys of
//! certificates. The control plane makes a new generation every day; the previous one stays valid as long as the tokens
//! and tickets made with it. Every gateway has its own identity key. When a gateway's credential is revoked, its key is
//! withdrawn, and the other gateways get new keys for session tickets.

use serde::{Deserialize, Serialize};

use crate::time::UnixSeconds;
use crate::token::{KeySet, SEED_BYTES};

/// The place for which a keyring is sealed.
pub const KEYRING_PLACE: &str = "keyring of the gateways";

/// Generations in one keyring: the next, the current and the previous.
pub const GENERATIONS_MAX: usize = 3;

/// The most gateways with keys: those with a valid credential.
pub const GATEWAYS_WITH_KEYS_MAX: i64 = 256;

/// One generation of keys.
#[derive(Clone, Serialize, Deserialize)]
pub struct Generation {
    /// Higher than all earlier generations.
    pub number: i64,
    /// Tokens are signed with it from this time; its public key is published earlier.
    pub signs_from: UnixSeconds,
    /// The private key with which only this gateway signs identities.
    pub identity: [u8; SEED_BYTES],
    /// The seed of the session ticket keys.
    pub tickets: [u8; SEED_BYTES],
}

/// All keys of a gateway except its own credential and the sealing secret. Not printable.
#[derive(Clone, Serialize, Deserialize)]
pub struct Keyring {
    /// This gateway's registered name. Only passes for this name open its admin listener.
    pub gateway: String,
    /// The newest first.
    pub generations: Vec<Generation>,
    /// The public keys of the identities that all gateways sign; this one publishes it.
    pub identities: KeySet,
    /// The public keys of operators' passes for the gateway's admin listener.
    pub passes: KeySet,
}
