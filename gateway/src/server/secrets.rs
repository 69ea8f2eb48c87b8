//! What a gateway signs, seals and knows operators with: sent by the control plane, or derived from the platform's secret
//! where it has that.

use std::sync::Arc;

use anyhow::Context as _;
use chassis::clock::Clock;
use chassis::guard::{PassGuard, TrustedKeys, pass_key};
use chassis::seal::SealingKey;
use contract::trust::GATEWAYS;

use crate::config::{Config, Credential};
use crate::door::{TicketSeed, Tickets};
use crate::keyring::KeyringHolder;
use crate::vouch::Vouchers;

pub(super) struct Secrets {
    pub(super) vouchers: Arc<Vouchers>,
    pub(super) tickets: Arc<Tickets>,
    pub(super) operators: PassGuard,
    /// Who takes what the control plane sends.
    pub(super) keyring: Option<Arc<KeyringHolder>>,
}

impl Secrets {
    /// Passes are judged by the time of the fleet: a gateway whose own clock is wrong must not lock operators out.
    pub(super) fn of(config: &Config, clock: Arc<dyn Clock>, fleet_clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        let now = Arc::new(move || clock.now_seconds());
        let Credential::Platform(secret) = &config.credential else {
            let vouchers = Arc::new(Vouchers::waiting());
            let tickets = Tickets::new(Vec::new(), now);
            let operators = PassGuard::new(TrustedKeys::none(), GATEWAYS, None, fleet_clock);
            let keyring = KeyringHolder {
                file: config.data_directory.join("keyring.sealed"),
                sealing: SealingKey::of(&config.sealing_secret)?,
                vouchers: vouchers.clone(),
                tickets: tickets.clone(),
                operators: operators.clone(),
            };
            keyring.recall();
            return Ok(Self { vouchers, tickets, operators, keyring: Some(Arc::new(keyring)) });
        };
        tracing::warn!(
            "this gateway has the secret of the platform, which opens everything; give it a credential of its own with \
             `tollhouse node add`, set credential_file, and take secret_file away"
        );
        let seed = secret.derive("session tickets");
        let seed: [u8; 32] = seed.reveal().try_into().context("the ticket seed has the wrong length")?;
        Ok(Self {
            vouchers: Arc::new(Vouchers::derived(secret)?),
            tickets: Tickets::new(vec![TicketSeed::new(seed)], now),
            operators: PassGuard::new(
                TrustedKeys::always(pass_key(secret)?.public()),
                GATEWAYS,
                Some(secret),
                fleet_clock,
            ),
            keyring: None,
        })
    }
}
