//! The keys of the gateways: made here, renewed every day, sent sealed.
//!
//! A new generation is known to gateways and services for [`KNOWN_BEFORE_SECONDS`] before it signs, so no token is
//! refused because of a change. What is sealed with a secret that is gone is replaced: keys are cheap. While the database is away the gateways keep what they have.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chassis::guard::TrustedKeys;
use chassis::shutdown::Shutdown;
use contract::keyring::{Generation, KEYRING_PLACE, Keyring};
use contract::token::{KeySet, SigningKey};

use crate::app::App;
use crate::store::gateways::SealedGeneration;

/// How long a generation signs.
const GENERATION_SECONDS: i64 = 86_400;

/// How long a generation is known before it signs.
const KNOWN_BEFORE_SECONDS: i64 = 120;

/// How often services and gateways look for a change, the control plane itself included.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The place that a generation at rest is sealed for.
fn place(number: i64) -> String {
    format!("keys of the gateways {number}")
}

fn open(app: &App, stored: &SealedGeneration) -> Option<Generation> {
    let plain = app.sealing.open(&stored.sealed, &place(stored.number)).ok()?;
    serde_json::from_slice(&plain).ok()
}

/// The generations that open, the newest first.
pub(crate) async fn generations(app: &App) -> anyhow::Result<Vec<Generation>> {
    let stored = app.store.generations().await?;
    Ok(stored.iter().filter_map(|stored| open(app, stored)).collect())
}

/// Makes a generation. If the ones before are `compromised` they are forgotten, and it signs at once.
pub(crate) async fn renew(app: &App, compromised: bool) -> anyhow::Result<()> {
    let now = app.clock.now_seconds();
    let stored = app.store.generations().await?;
    let is_first = compromised || !stored.iter().any(|stored| open(app, stored).is_some());
    let newest = stored.first().map_or(0, |newest| newest.number);
    // Counts on from the clock, so that a restored database does not give a number twice.
    let number = now.0.max(newest.saturating_add(1));
    let signs_from = if is_first { now } else { now.plus(KNOWN_BEFORE_SECONDS) };
    let generation =
        Generation { number, signs_from, identity: chassis::random::bytes()?, tickets: chassis::random::bytes()? };
    let sealed = app.sealing.seal(&serde_json::to_vec(&generation)?, &place(number))?;
    let mut write = app.store.write().await?;
    write.add_generation(&SealedGeneration { number, sealed, signs_from }, compromised).await?;
    write.commit().await?;
    tracing::info!(number, compromised, "gateways are given new keys");
    Ok(())
}

/// Makes a generation if it is time for one.
pub(crate) async fn renew_when_due(app: &App) -> anyhow::Result<()> {
    let newest = generations(app).await?.first().map(|newest| newest.signs_from);
    let due = newest.is_none_or(|newest| app.clock.now_seconds().0 >= newest.0.saturating_add(GENERATION_SECONDS));
    if due { renew(app, false).await } else { Ok(()) }
}

/// The public keys of the generations.
pub(crate) fn public(generations: &[Generation]) -> KeySet {
    let keys = generations.iter().filter_map(|generation| SigningKey::from_seed(&generation.identity).ok());
    keys.map(|key| key.public().clone()).collect()
}

/// What gateways are sent, and the numbers of its generations: other numbers, and they are sent it again.
pub(crate) async fn sealed(app: &App) -> anyhow::Result<(String, Vec<i64>)> {
    let generations = generations(app).await?;
    let numbers = generations.iter().map(|generation| generation.number).collect();
    let passes = [app.pass_key.public().clone()].into_iter().collect();
    let keyring = Keyring { generations, passes, operators: Vec::new() };
    Ok((app.sealing.seal(&serde_json::to_vec(&keyring)?, KEYRING_PLACE)?, numbers))
}

/// Renews the keys, and believes what is signed with them, until `shutdown`.
pub(crate) async fn keep(app: Arc<App>, trusted: TrustedKeys, shutdown: Shutdown) {
    let mut failing = false;
    while !shutdown.has_begun() {
        let looked = look(&app, &trusted).await;
        if let (Err(error), false) = (&looked, failing) {
            tracing::warn!(error = format!("{error:#}"), "the keys of the gateways cannot be looked after");
        }
        failing = looked.is_err();
        tokio::select! {
            () = shutdown.begun() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// Renews the keys if it is time, and believes what is signed with them.
pub(crate) async fn look(app: &App, trusted: &TrustedKeys) -> anyhow::Result<()> {
    renew_when_due(app).await.context("renewing the keys of the gateways")?;
    trusted.replace(&public(&generations(app).await?));
    Ok(())
}
