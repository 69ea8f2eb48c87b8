//! The gateway's keys for signing and sealing. The control plane sends them sealed, and the gateway keeps them sealed
//! in a file, so that it starts without the control plane.
//!
//! A gateway without keys serves requests that need none: services behind it refuse, sessions are not resumed, and its
//! admin listener refuses operators.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use chassis::guard::PassGuard;
use chassis::seal::SealingKey;
use chassis::secret::write_private;
use contract::keyring::{GENERATIONS_MAX, KEYRING_PLACE, Keyring};

use crate::identity::IdentityTokens;
use listener::{TicketSeed, Tickets};
use replica::EnrolledName;
use replica::damage;

/// The largest file of keys: those of 256 gateways at most, three each, take a fifth of it.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Takes and stores the keys.
pub(crate) struct KeyringHolder {
    /// The file of the sealed keys.
    pub file: PathBuf,
    /// Opens the sealed keys.
    pub sealing: SealingKey,
    /// Signs identities.
    pub identity_tokens: Arc<IdentityTokens>,
    /// Seals TLS sessions.
    pub tickets: Arc<Tickets>,
    /// Authenticates operators.
    pub operators: PassGuard,
    /// Learns the name of this gateway.
    pub name: EnrolledName,
}

impl KeyringHolder {
    /// Loads the keys from the file, if it exists. Keys that cannot be decrypted are ignored: the control plane sends
    /// new ones.
    pub(crate) fn restore(&self) {
        let Some(sealed) = damage::read(&self.file, FILE_BYTES_MAX) else { return };
        let used = std::str::from_utf8(&sealed).map_err(anyhow::Error::from).and_then(|sealed| self.use_keys(sealed));
        if let Err(error) = used {
            tracing::warn!(
                error = format!("{error:#}"),
                "cannot use the stored signing keys; waiting for new ones from the control plane"
            );
        }
    }

    /// Takes keys that the control plane sent, and stores them.
    ///
    /// # Errors
    /// They cannot be decrypted, are not a keyring, or cannot be stored.
    pub(crate) fn take(&self, sealed: &str) -> anyhow::Result<()> {
        self.use_keys(sealed)?;
        write_private(&self.file, sealed.as_bytes())
    }

    fn use_keys(&self, sealed: &str) -> anyhow::Result<()> {
        let plain = self.sealing.open(sealed, KEYRING_PLACE).context("opening the keyring")?;
        let keyring: Keyring = serde_json::from_slice(&plain).context("reading the keyring")?;
        let Keyring { gateway, mut generations, identities, passes } = keyring;
        generations.truncate(GENERATIONS_MAX);
        self.identity_tokens.replace(&generations, identities)?;
        self.tickets.replace_seeds(generations.iter().map(|generation| TicketSeed::new(generation.tickets)).collect());
        self.operators.replace(&gateway, &passes);
        self.name.store(Some(Arc::new(gateway)));
        Ok(())
    }
}
