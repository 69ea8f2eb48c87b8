//! The gateway's keys for signing, sealing and authenticating operators, as the control plane sends them.

use std::sync::Arc;

use chassis::clock::Clock;
use chassis::guard::PassGuard;
use chassis::seal::SealingKey;

use crate::config::Config;
use crate::identity::IdentityTokens;
use crate::keyring::KeyringHolder;
use listener::Tickets;
use replica::EnrolledName;
use replica::damage::KEYRING;

pub(super) struct Secrets {
    pub(super) identity_tokens: Arc<IdentityTokens>,
    pub(super) tickets: Arc<Tickets>,
    pub(super) operators: PassGuard,
    /// Takes the keys that the control plane sends.
    pub(super) keyring: Arc<KeyringHolder>,
}

impl Secrets {
    /// Passes are checked by the fleet's clock, so that a gateway with a wrong clock does not lock operators out.
    pub(super) fn of(
        config: &Config,
        name: EnrolledName,
        clock: Arc<dyn Clock>,
        fleet_clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let now = Arc::new(move || clock.now_seconds());
        let identity_tokens = Arc::new(IdentityTokens::waiting());
        let tickets = Tickets::new(Vec::new(), now);
        let operators = PassGuard::of_gateway(fleet_clock);
        let keyring = KeyringHolder {
            file: config.data_directory.join(KEYRING),
            sealing: SealingKey::of(&config.sealing_secret)?,
            identity_tokens: identity_tokens.clone(),
            tickets: tickets.clone(),
            operators: operators.clone(),
            name,
        };
        keyring.restore();
        Ok(Self { identity_tokens, tickets, operators, keyring: Arc::new(keyring) })
    }
}
