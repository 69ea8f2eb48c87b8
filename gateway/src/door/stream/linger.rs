//! The last moments of a connection that we end early: say the last words, say that we will say no more, and read on
//! briefly so that the client gets to read them.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Transport;
use crate::door::registry::Slot;
use crate::door::settings::DoorSettings;

/// Hands the connection to a task of its own, which ends after `linger_timeout` at the latest. The slot is held until
/// then: a lingering connection is an open one. Without a runtime, at the end of the process, it just closes.
pub(super) fn spawn<S: Transport>(io: S, last_words: Vec<u8>, settings: Arc<DoorSettings>, slot: Slot) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return;
    };
    runtime.spawn(async move {
        let _slot = slot;
        // Nothing is left to do about an error or a timeout: the client is gone or does not listen.
        let _ = tokio::time::timeout(settings.linger_timeout, linger(io, &last_words, settings.linger_bytes)).await;
    });
}

async fn linger<S: Transport>(mut io: S, last_words: &[u8], mut bytes_left: usize) -> std::io::Result<()> {
    io.write_all(last_words).await?;
    io.flush().await?;
    io.shutdown().await?;
    let mut sink = [0; 4096];
    while bytes_left > 0 {
        let read = io.read(&mut sink).await?;
        if read == 0 {
            break;
        }
        bytes_left = bytes_left.saturating_sub(read);
    }
    Ok(())
}
