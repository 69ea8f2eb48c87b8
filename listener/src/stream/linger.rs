//! The last moments of a connection that we end: say the last words, say that we will say no more, and read on for a while
//! so that the client gets to read them.
//!
//! Most clients send all of a body before they read, and some an upload of many megabytes: a refusal that came early
//! reaches them only if somebody takes the rest. How long that may last is bounded by time, by silence and by bytes, and
//! how many connections of one client may have it at once ([`Slot::linger_long`]): the others have a moment.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWriteExt as _, ReadBuf};
use tokio::time::{Instant, timeout, timeout_at};

use super::Transport;
use crate::registry::Slot;
use crate::settings::DoorSettings;

/// Room for what is read and forgotten.
const SINK_BYTES: usize = 16 * 1024;

/// How much is done for a client that is still sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// `linger_timeout` and `linger_bytes`: for whoever sends what is no request.
    Short,
    /// Ten times the time while it goes on sending, and `linger_bytes_long`: for whoever sends a body, or takes its
    /// responses.
    Long,
}

/// Hands the connection to a task of its own. The slot is held until its end: a lingering connection is an open one.
/// Without a runtime, at the end of the process, it just closes.
pub(super) fn spawn<S: Transport>(
    io: S,
    last_words: Vec<u8>,
    patience: Patience,
    settings: &Arc<DoorSettings>,
    mut slot: Slot,
) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return;
    };
    let pause = settings.linger_timeout;
    let (whole, bytes) = if patience == Patience::Long && slot.linger_long(settings.lingering_per_address) {
        (settings.linger_timeout_long, settings.linger_bytes_long)
    } else {
        (pause, settings.linger_bytes)
    };
    runtime.spawn(async move {
        let _slot = slot;
        // Nothing is left to do about an error or a timeout: the client is gone or does not listen.
        let _ = timeout_at(Instant::now() + whole, linger(io, &last_words, pause, bytes)).await;
    });
}

async fn linger<S: Transport>(
    mut io: S,
    last_words: &[u8],
    pause: Duration,
    mut bytes_left: usize,
) -> std::io::Result<()> {
    io.write_all(last_words).await?;
    io.flush().await?;
    io.shutdown().await?;
    let mut sink = vec![0; SINK_BYTES];
    while bytes_left > 0 {
        let read = timeout(
            pause,
            poll_fn(|cx| {
                let mut buf = ReadBuf::new(&mut sink);
                io.poll_discard(cx, &mut buf).map_ok(|()| buf.filled().len())
            }),
        );
        let read = read.await??;
        if read == 0 {
            break;
        }
        bytes_left = bytes_left.saturating_sub(read);
    }
    Ok(())
}
