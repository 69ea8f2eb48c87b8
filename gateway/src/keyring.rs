//! What a gateway signs and seals with: sent by the control plane, sealed, and kept sealed in a file, so that a gateway
//! that starts while the control plane is away serves as before.
//!
//! A gateway that has never heard of its keys serves what needs none of them: services behind it refuse, sessions are not
//! resumed, and its admin listener opens to no operator.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use chassis::guard::PassGuard;
use chassis::seal::SealingKey;
use chassis::secret::write_private;
use contract::keyring::{GENERATIONS_MAX, KEYRING_PLACE, Keyring};

use crate::damage;
use crate::place::EnrolledName;
use crate::vouch::Vouchers;
use listener::{TicketSeed, Tickets};

/// The largest file of keys: those of 256 gateways at most, three each, take a fifth of it.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Who is given the keys.
pub(crate) struct KeyringHolder {
    /// Where they rest.
    pub file: PathBuf,
    /// Opens them.
    pub sealing: SealingKey,
    /// Signs identities with them.
    pub vouchers: Arc<Vouchers>,
    /// Seals sessions with them.
    pub tickets: Arc<Tickets>,
    /// Knows operators by them.
    pub operators: PassGuard,
    /// Learns what this gateway is called.
    pub name: EnrolledName,
}

impl KeyringHolder {
    /// Takes what was kept, if anything was. What does not open any more is left alone: the control plane sends it anew.
    pub(crate) fn recall(&self) {
        let Some(sealed) = damage::read(&self.file, FILE_BYTES_MAX) else { return };
        let used = std::str::from_utf8(&sealed).map_err(anyhow::Error::from).and_then(|sealed| self.use_keys(sealed));
        if let Err(error) = used {
            tracing::warn!(
                error = format!("{error:#}"),
                "the keys that were kept cannot be used; new ones are asked for"
            );
        }
    }

    /// Takes what the control plane has sent, and keeps it.
    ///
    /// # Errors
    /// When it does not open, is no keyring, or cannot be kept.
    pub(crate) fn take(&self, sealed: &str) -> anyhow::Result<()> {
        self.use_keys(sealed)?;
        write_private(&self.file, sealed.as_bytes())
    }

    fn use_keys(&self, sealed: &str) -> anyhow::Result<()> {
        let plain = self.sealing.open(sealed, KEYRING_PLACE).context("opening the keyring")?;
        let keyring: Keyring = serde_json::from_slice(&plain).context("reading the keyring")?;
        let Keyring { gateway, mut generations, identities, passes } = keyring;
        generations.truncate(GENERATIONS_MAX);
        self.vouchers.replace(&generations, identities)?;
        self.tickets.replace_seeds(generations.iter().map(|generation| TicketSeed::new(generation.tickets)).collect());
        self.operators.replace(&gateway, &passes);
        self.name.store(Some(Arc::new(gateway)));
        Ok(())
    }
}
