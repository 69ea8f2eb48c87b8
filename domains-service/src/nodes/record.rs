//! Writes the record of processes in the background: reports wait neither for the disk nor for the database.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use chassis::shutdown::Shutdown;

use super::{Nodes, RecordChange};
use crate::store::{Result, Store};

/// Interval between two searches for due changes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Writes live processes to the database, each once a minute, and at once when it is new or says goodbye, until
/// `shutdown`.
pub(crate) async fn keep(store: Store, nodes: Arc<Nodes>, shutdown: Shutdown) {
    let (mut is_written, mut silent) = (true, BTreeSet::new());
    loop {
        silent = log_silent(&nodes, &silent);
        let ends = shutdown.has_begun();
        match write(&store, &nodes).await {
            Ok(()) => is_written = true,
            Err(error) if std::mem::replace(&mut is_written, false) => tracing::warn!(
                %error,
                "cannot save the reports of gateway processes; retrying every second. After a restart of this service, \
                 removals may not wait for gateways that it cannot remember. Check the database"
            ),
            Err(error) => tracing::debug!(%error, "still cannot save the reports of gateway processes"),
        }
        if ends {
            return;
        }
        tokio::select! {
            () = shutdown.begun() => {}
            () = nodes.due.notified() => {}
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
}

/// Logs processes that fell silent without a goodbye since the last call, which found `before`. Returns the silent ones.
fn log_silent(nodes: &Nodes, before: &BTreeSet<String>) -> BTreeSet<String> {
    let silent = nodes.silent();
    for node in silent.difference(before) {
        tracing::warn!(
            node,
            what_to_do = "start it, or repair the network from it to this service; if it has ended for good, run \
                          `tollhouse node revoke` with the part of its name before the slash",
            "a gateway process fell silent; changes no longer wait for it, withdrawals do"
        );
    }
    silent
}

async fn write(store: &Store, nodes: &Nodes) -> Result<()> {
    for due in nodes.due() {
        match &due {
            RecordChange::Write(process) => store.record_process(process).await?,
            RecordChange::Delete(node) => store.forget_process(node).await?,
        }
        nodes.recorded(&due);
    }
    Ok(())
}
