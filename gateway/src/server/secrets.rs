//! What a gateway signs, seals and knows operators with, as the control plane sends it.

use std::sync::Arc;

use chassis::clock::Clock;
use chassis::guard::PassGuard;
use chassis::seal::SealingKey;

use crate::config::Config;
use crate::damage::KEYRING;
use crate::keyring::KeyringHolder;
use crate::place::EnrolledName;
use crate::vouch::Vouchers;
use listener::Tickets;

pub(super) struct Secrets {
    pub(super) vouchers: Arc<Vouchers>,
    pub(super) tickets: Arc<Tickets>,
    pub(super) operators: PassGuard,
    /// Who takes what the control plane sends.
    pub(super) keyring: KeyringHolder,
}

impl Secrets {
    /// Passes are judged by the time of the fleet: a gateway whose own clock is wrong must not lock operators out.
    pub(super) fn of(
        config: &Config,
        name: EnrolledName,
        clock: Arc<dyn Clock>,
        fleet_clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let now = Arc::new(move || clock.now_seconds());
        let vouchers = Arc::new(Vouchers::waiting());
        let tickets = Tickets::new(Vec::new(), now);
        let operators = PassGuard::of_gateway(fleet_clock);
        let keyring = KeyringHolder {
            file: config.data_directory.join(KEYRING),
            sealing: SealingKey::of(&config.sealing_secret)?,
            vouchers: vouchers.clone(),
            tickets: tickets.clone(),
            operators: operators.clone(),
            name,
        };
        keyring.recall();
        Ok(Self { vouchers, tickets, operators, keyring })
    }
}
