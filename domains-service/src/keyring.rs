//! The keys of the gateways: made here, rotated every day, sent sealed.
//!
//! Each gateway signs identities with its own key, so one key can be withdrawn without the others, and a signature
//! names its gateway. A gateway's key derives from a secret that never leaves this service, the gateway's name and its
//! credential: no gateway can derive another's key. All gateways share the keys of session tickets, so any of them
//! resumes a session.
//!
//! Gateways and services know a new generation for [`KNOWN_BEFORE_SECONDS`] before it signs, so no token is refused
//! during a rotation. Generations are sealed again as soon as there is a newer sealing secret. A generation whose
//! sealing secret is lost is replaced, and services refuse gateways until they know the new keys. While the database is
//! away the gateways keep their keys.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chassis::seal::name_in;
use chassis::shutdown::Shutdown;
use contract::keyring::{KEYRING_PLACE, Keyring};

use crate::common::Core;
use crate::gateways::Gateways;
use crate::identities::{Identities, Master, Version, version_of};
use crate::store::credentials::{Credential, Kind};
use crate::store::gateways::{SealedGeneration, generations};
use crate::store::{Result, Write};

/// How long a generation signs.
const GENERATION_SECONDS: i64 = 86_400;

/// Seconds for which a generation is known before it signs.
const KNOWN_BEFORE_SECONDS: i64 = 120;

/// Interval at which services, gateways and the control plane itself check for a change.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The name for which a stored generation is sealed.
fn place(number: i64) -> String {
    format!("keys of the gateways {number}")
}

fn open(core: &Core, stored: &SealedGeneration) -> Option<Master> {
    let plain = core.sealing.open(&stored.sealed, &place(stored.number)).ok()?;
    serde_json::from_slice(&plain).ok()
}

/// Whether our sealing secrets open the keys of any generation.
pub(crate) async fn opens(core: &Core) -> Result<bool> {
    Ok(generations(core.store.reader()).await?.iter().any(|stored| open(core, stored).is_some()))
}

fn seal(core: &Core, master: &Master) -> anyhow::Result<SealedGeneration> {
    let sealed = core.sealing.seal(&serde_json::to_vec(master)?, &place(master.number))?;
    Ok(SealedGeneration { number: master.number, sealed, signs_from: master.signs_from })
}

/// The keys of all registered gateways. They are derived after a change, and kept.
pub(crate) async fn identities(gateways: &Gateways) -> anyhow::Result<Arc<Identities>> {
    let core = &gateways.core;
    // The order matters: a credential that is revoked after the generations were read is not in the list, so it never
    // gets the tickets that its revocation made.
    let stored = generations(core.store.reader()).await?;
    let credentials = core.store.good_credentials(Some(Kind::Gateway)).await?;
    let version = version_of(&stored, &credentials);
    let known = gateways.identities.lock().clone();
    if known.version == version {
        return Ok(known);
    }
    let masters = stored.iter().filter_map(|stored| open(core, stored)).collect();
    let made = Arc::new(Identities::derive(version, masters, credentials)?);
    *gateways.identities.lock() = made.clone();
    Ok(made)
}

/// Refuses this gateway's signatures without a read of the database, for a revocation after which the read failed. The
/// next [`identities`] derives everything again.
pub(crate) fn refuse(gateways: &Gateways, gateway: &str) {
    let mut identities = gateways.identities.lock();
    *identities = Arc::new(identities.without(gateway));
}

/// Makes a generation. If the earlier ones are `compromised`, they are deleted and it signs at once.
pub(crate) async fn renew(core: &Core, compromised: bool) -> anyhow::Result<()> {
    let now = core.clock.now_seconds();
    let stored = generations(core.store.reader()).await?;
    // A generation with a damaged number does not open, so the next number does not follow it.
    let newest = stored.iter().find_map(|stored| open(core, stored)).map(|newest| newest.number);
    let is_first = compromised || newest.is_none();
    // Numbers follow the clock, so that a restored database does not give a number twice.
    let number = now.0.max(newest.map_or(0, |newest| newest.saturating_add(1)));
    let signs_from = if is_first { now } else { now.plus(KNOWN_BEFORE_SECONDS) };
    let master = Master { number, signs_from, identity: chassis::random::bytes()?, tickets: chassis::random::bytes()? };
    let sealed = seal(core, &master)?;
    let mut write = core.store.write().await?;
    write.add_generation(&sealed, compromised).await?;
    write.commit().await?;
    tracing::info!(number, compromised, "rotated the signing keys of gateways");
    Ok(())
}

/// Seals again the generations of older secrets, so that gateways continue to sign when an older secret is removed.
async fn reseal(core: &Core, stored: &[SealedGeneration]) -> anyhow::Result<()> {
    let is_older = |stored: &SealedGeneration| core.sealing.older().any(|older| older == name_in(&stored.sealed));
    if !stored.iter().any(is_older) {
        return Ok(());
    }
    let mut write = core.store.write().await?;
    for stored in generations(write.connection()).await?.into_iter().filter(is_older) {
        match core.sealing.reseal(&stored.sealed, &place(stored.number)) {
            Ok(sealed) => write.replace_generation(&SealedGeneration { sealed, ..stored }).await?,
            // It is damaged, and is not used.
            Err(error) => tracing::debug!(
                number = stored.number, %error, "cannot seal a signing key of gateways with the newest secret"
            ),
        }
    }
    Ok(write.commit().await.map(drop)?)
}

/// Makes a generation if it is time for one.
async fn renew_when_due(core: &Core) -> anyhow::Result<()> {
    let stored = generations(core.store.reader()).await?;
    reseal(core, &stored).await?;
    // The sealed text says since when it signs; the column may be damaged.
    let newest = stored.iter().find_map(|stored| open(core, stored)).map(|newest| newest.signs_from);
    let due = newest.is_none_or(|newest| core.clock.now_seconds().0 >= newest.0.saturating_add(GENERATION_SECONDS));
    if due { renew(core, false).await } else { Ok(()) }
}

/// Makes new session-ticket keys for all gateways, for the transaction `write` that revokes a gateway. The gateway's
/// identity key is withdrawn with its credential.
pub(crate) async fn replace_tickets(core: &Core, write: &mut Write) -> anyhow::Result<()> {
    for stored in generations(write.connection()).await? {
        let Some(mut master) = open(core, &stored) else { continue };
        master.tickets = chassis::random::bytes()?;
        write.replace_generation(&seal(core, &master)?).await?;
    }
    Ok(())
}

/// The update of a follower's keys.
pub(crate) enum KeyUpdate {
    /// The follower has the current keys.
    None,
    /// The follower's credential is revoked.
    Revoked,
    /// These, sealed.
    Keys { sealed: String, version: Version },
}

/// The update for the gateway with this credential, which has the keys of version `has`.
pub(crate) async fn update_for(
    gateways: &Gateways,
    gateway: &Credential,
    has: Option<Version>,
) -> anyhow::Result<KeyUpdate> {
    let identities = identities(gateways).await?;
    if !identities.is_good(gateway) {
        return Ok(KeyUpdate::Revoked);
    }
    if has == Some(identities.version) {
        return Ok(KeyUpdate::None);
    }
    let generations = identities.generations(gateway)?;
    let (gateway, public) = (gateway.name.clone(), identities.public.clone());
    let keyring = Keyring { gateway, generations, identities: public, passes: gateways.passes() };
    let sealed = gateways.core.sealing.seal(&serde_json::to_vec(&keyring)?, KEYRING_PLACE)?;
    Ok(KeyUpdate::Keys { sealed, version: identities.version })
}

/// Rotates the keys and trusts their signatures, until `shutdown`.
pub(crate) async fn keep(gateways: Arc<Gateways>, shutdown: Shutdown) {
    let mut failing = false;
    while !shutdown.has_begun() {
        let rotated = rotate_if_due(&gateways).await;
        if let (Err(error), false) = (&rotated, failing) {
            tracing::warn!(
                error = format!("{error:#}"),
                "cannot rotate the signing keys of gateways; keeping the previous keys and retrying every second"
            );
        }
        failing = rotated.is_err();
        shutdown.pause(CHECK_INTERVAL).await;
    }
}

/// Rotates the keys if they are due, and trusts their signatures.
pub(crate) async fn rotate_if_due(gateways: &Gateways) -> anyhow::Result<()> {
    renew_when_due(&gateways.core).await.context("rotating the signing keys of gateways")?;
    gateways.trusted.replace(&identities(gateways).await?.public);
    Ok(())
}
