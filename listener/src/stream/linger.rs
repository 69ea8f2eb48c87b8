//! The end of a connection: send pending output, close our side, and read for a while, so that the client can read the
//! response.
//!
//! Most clients send the whole body before they read, and some bodies have many megabytes: an early refusal reaches
//! them only if the rest is read. Lingering is bounded in total time, pause and bytes. Only some connections of one
//! client may linger long at once ([`Slot::linger_long`]); the others linger shortly.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWriteExt as _, ReadBuf};
use tokio::time::{Instant, timeout, timeout_at};

use super::ByteStream;
use crate::registry::Slot;
use crate::settings::ListenerSettings;

/// Buffer for discarded data.
const SINK_BYTES: usize = 16 * 1024;

/// How long to linger for a client that is still sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Linger {
    /// `linger_timeout` and `linger_bytes`: after a malformed request.
    Short,
    /// `linger_timeout_long` while the client keeps sending, and `linger_bytes_long`: for a client that sends a body or
    /// reads its responses.
    Long,
}

/// Starts a task that lingers. It holds the slot until its end, because a lingering connection is an open one. Without
/// a runtime, at the end of the process, the connection just closes.
pub(super) fn spawn<S: ByteStream>(
    io: S,
    unsent: Vec<u8>,
    kind: Linger,
    settings: &Arc<ListenerSettings>,
    mut slot: Slot,
) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return;
    };
    let pause = settings.linger_timeout;
    let (whole, bytes) = if kind == Linger::Long && slot.linger_long(settings.lingering_per_address) {
        (settings.linger_timeout_long, settings.linger_bytes_long)
    } else {
        (pause, settings.linger_bytes)
    };
    runtime.spawn(async move {
        let _slot = slot;
        // An error or timeout needs no action: the client is gone or does not read.
        let _ = timeout_at(Instant::now() + whole, linger(io, &unsent, pause, bytes)).await;
    });
}

async fn linger<S: ByteStream>(
    mut io: S,
    unsent: &[u8],
    pause: Duration,
    mut bytes_left: usize,
) -> std::io::Result<()> {
    io.write_all(unsent).await?;
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
