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

use crate::place::EnrolledName;
use crate::vouch::Vouchers;
use listener::{TicketSeed, Tickets};

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
        let Ok(sealed) = std::fs::read_to_string(&self.file) else { return };
        if let Err(error) = self.use_keys(&sealed) {
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
