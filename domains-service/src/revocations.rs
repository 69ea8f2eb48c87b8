//! Keeps the file of revoked credentials and the database equal: at the start, before credentials are enrolled from
//! files, after each revocation, and every second, for those of other replicas.
//!
//! A credential of the file that the database does not have as revoked is revoked again: the database went back to an
//! earlier state. Without a usable file the service does not start; later, the status shows what is wrong with it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use chassis::shutdown::Shutdown;

use crate::gateways::Gateways;
use crate::keyring;
use crate::store::comparison::{self, Revocation};
use crate::store::credentials::{Kind, Recorded};
use crate::store::revocations::Revocations;

/// Interval of reads of the database.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Opens the file, and makes it if it is missing.
///
/// # Errors
/// When it cannot be read, written and synced, with the fix.
pub(crate) fn open(path: &Path) -> anyhow::Result<Revocations> {
    Revocations::open(path).with_context(|| {
        format!(
            "cannot use revocations_file {}, without which a database that went back in time would make revoked \
             credentials valid again: make the file and its directory readable and writable for this service, on a disk \
             that lasts, or set another path",
            path.display()
        )
    })
}

/// Revokes in the database every credential of the file that it does not have as revoked. [`keep`] does the opposite as
/// well.
///
/// # Errors
/// When the database does not answer.
pub(crate) async fn revoke_again(gateways: &Gateways) -> anyhow::Result<()> {
    let store = &gateways.core.store;
    let Some(file) = store.revocations() else { return Ok(()) };
    let lost = store.without_revocation(file.all()).await?;
    if lost.is_empty() {
        return Ok(());
    }
    let mut write = store.write().await?;
    let mut revoked_gateways = Vec::new();
    for revoked in &lost {
        let Revocation { digest, name, kind, .. } = revoked;
        let last = if let Ok(kind) = kind.parse::<Kind>() { write.last_credential(kind, name).await? } else { None };
        let is_good = |last: &Recorded| last.credential.digest == *digest && last.revoked_at.is_none();
        if let Some(good) = last.filter(is_good) {
            write.revoke(&good.credential).await?;
            revoked_gateways.extend((good.credential.kind == Kind::Gateway).then_some(good.credential.name));
        }
        comparison::revoke(write.connection(), revoked).await?;
    }
    if !revoked_gateways.is_empty() {
        keyring::replace_tickets(&gateways.core, &mut write).await?;
    }
    write.commit().await?;
    for gateway in &revoked_gateways {
        gateways.nodes.revoke(gateway);
    }
    store.reload_credentials().await?;
    for Revocation { digest, name, kind, .. } in &lost {
        let digest: String = digest.chars().take(8).collect();
        tracing::warn!(
            kind,
            name,
            digest,
            "revoked a credential again: the database went back to a state before its revocation. API keys, names and \
             projects may be back too: see what `tollhouse node accept` lists"
        );
    }
    Ok(())
}

/// Keeps the file and the database in the same state, until `shutdown`.
pub(crate) async fn keep(gateways: Arc<Gateways>, shutdown: Shutdown) {
    let mut failing = false;
    while !shutdown.has_begun() {
        let mut kept = gateways.core.store.record_revocations().await;
        if gateways.core.store.has_lost_revocations() {
            kept = kept.and(revoke_again(&gateways).await);
        }
        if let (Err(error), false) = (&kept, failing) {
            tracing::error!(
                error = format!("{error:#}"),
                "cannot bring revocations_file and the database into agreement; retrying every second. Fix the \
                 cause given in `error`"
            );
        }
        failing = kept.is_err();
        shutdown.pause(CHECK_INTERVAL).await;
    }
}
