//! The keys that gateways sign and seal with, as the control plane makes them and sends them: a gateway that has them
//! needs no secret of the platform.
//!
//! They travel sealed with the platform's sealing secret, as private keys of certificates do, and rest sealed at the
//! gateway. The control plane makes a new generation every day; the one before stays good for as long as what was made
//! with it. Every gateway has an identity key of its own. When a gateway's credential is revoked its key is withdrawn, and the
//! others are sent other keys for session tickets.

use serde::{Deserialize, Serialize};

use crate::time::UnixSeconds;
use crate::token::{KeySet, SEED_BYTES};

/// The place that a keyring is sealed for.
pub const KEYRING_PLACE: &str = "keyring of the gateways";

/// Generations of one keyring: the next, the present and the one before.
pub const GENERATIONS_MAX: usize = 3;

/// Gateways that have keys at a time: those on record whose credentials are good.
pub const GATEWAYS_WITH_KEYS_MAX: i64 = 256;

/// The keys of one time.
#[derive(Clone, Serialize, Deserialize)]
pub struct Generation {
    /// Higher than those of all generations before.
    pub number: i64,
    /// Tokens are signed with it from this moment; its public key is known earlier.
    pub signs_from: UnixSeconds,
    /// The private key with which this gateway, and no other, signs identities.
    pub identity: [u8; SEED_BYTES],
    /// What the keys of session tickets are derived from.
    pub tickets: [u8; SEED_BYTES],
}

/// Everything a gateway needs beside its own credential and the sealing secret. Not printable.
#[derive(Clone, Serialize, Deserialize)]
pub struct Keyring {
    /// As what this gateway is on record. Passes for it, and for no other, open its admin listener.
    pub gateway: String,
    /// The newest first.
    pub generations: Vec<Generation>,
    /// What verifies the identities that all gateways sign: this one publishes it.
    pub identities: KeySet,
    /// Signed with one of these, an operator's pass opens the gateway's admin listener.
    pub passes: KeySet,
}
