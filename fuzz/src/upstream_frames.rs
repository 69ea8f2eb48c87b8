//! Frames of an upstream, on HTTP/2 connections for the requests of two tenants.

use std::cell::Cell;
use std::future::ready;
use std::panic;
use std::sync::{Arc, Once};
use std::time::Duration;

use futures_util::future::join;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::runtime::{Builder, Handle};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use upstreams::fuzzing::{Http2Pool, http2_pool};
use upstreams::{ConnectionLimits, DialError, PoolKey, Requirements, Tenant};

use crate::cut;

/// The tenants: the mark of each, and the URL of its requests. The mark is every byte of DATA on its streams, and the
/// last byte of the heads of its requests, because both paths are entries of HPACK's static table.
const TENANTS: [(u8, &str); 2] = [(0x84, "http://shop.example/"), (0x85, "http://shop.example/index.html")];

/// The requests of each tenant, one after the other.
const REQUESTS: usize = 2;
/// New connections of one request: fewer than four that end at once, and within `CONNECT_MAX` nine without requests.
const DIALS_MAX: usize = 13;
const CONNECT_MAX: Duration = Duration::from_secs(1);
const RESPONSE_MAX: Duration = Duration::from_secs(1);
/// All requests, and the end of their connections.
const RUN_MAX: Duration = Duration::from_mins(1);
const LIMITS: ConnectionLimits = ConnectionLimits { age: Duration::from_hours(1), requests: 1_000 };
/// The largest input: half a thousand frames.
const BYTES_MAX: usize = 2 * 1024;
/// The frames of the client on one connection.
const FRAMES_MAX: usize = 2_000;
/// After this time without a frame the client waits for one.
const SILENCE: Duration = Duration::from_millis(10);

// Types of frames, two further steps of the upstream, and flags.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CLOSE: u8 = 13;
const GARBAGE: u8 = 14;
const ACK: u8 = 1;
const PADDED: u8 = 8;

thread_local! {
    /// A task of this thread panicked. Its runtime does not report it.
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// Frames of an upstream: no response contains bytes of the other tenant's streams, each tenant has its connections
/// unless they are shared, few are opened, and all of them end.
pub fn upstream_frames(bytes: &[u8]) {
    let is_shared = bytes.last().is_some_and(|last| last % 2 == 1);
    complete_responses(bytes, is_shared);
}

/// The number of complete responses; `shared`: both tenants use the same connections. The first byte of the input
/// selects the size of pieces, and whether frames are sent before the first request; the others are the frames.
pub fn complete_responses(bytes: &[u8], shared: bool) -> usize {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICKED.set(true);
            before(info);
        }));
    });
    let input: Arc<[u8]> = bytes.get(..BYTES_MAX.min(bytes.len())).unwrap_or_default().into();
    // A runtime of its own, so that no task is left for the next input.
    let Ok(runtime) = Builder::new_current_thread().enable_time().start_paused(true).build() else { return 0 };
    let run = async {
        let pool = http2_pool(LIMITS, TENANTS.len() * REQUESTS * DIALS_MAX);
        let [one, other] = TENANTS.map(|tenant| requests(&pool, tenant, shared, &input));
        let (one, other) = join(one, other).await;
        drop(pool);
        while Handle::current().metrics().num_alive_tasks() > 0 {
            sleep(SILENCE).await;
        }
        one + other
    };
    let complete = runtime.block_on(async { timeout(RUN_MAX, run).await });
    assert!(!PANICKED.get(), "a task panicked");
    assert!(complete.is_ok(), "requests or connections do not end");
    complete.unwrap_or_default()
}

/// Sends the requests of a tenant; returns how many responses were complete.
async fn requests(pool: &Http2Pool, (mark, url): (u8, &str), shared: bool, input: &Arc<[u8]>) -> usize {
    let tenant = if shared { Tenant::default() } else { Tenant(u64::from(mark)) };
    let pool_key = PoolKey { tenant, tls_config: None };
    let requirements = Requirements { pool_key, may_be_repeated: true, received_after: None };
    let is_foreign = |byte: &u8| *byte != mark && is_mark(*byte);
    let mut complete = 0;
    for _ in 0..REQUESTS {
        let dials = Cell::new(0);
        let connect = || {
            dials.set(dials.get() + 1);
            let (here, stream) = duplex(1 << 16);
            let server = Server { stream, owner: (!shared).then_some(mark), streams: Vec::new(), received: 0 };
            tokio::spawn(server.serve(input.clone()));
            ready(Ok::<_, DialError>(here))
        };
        let acquired = pool.acquire(&requirements, CONNECT_MAX, connect).await;
        assert!(dials.get() <= DIALS_MAX, "{} connections for one request", dials.get());
        let (Ok(mut permit), Ok(request)) = (acquired, http::Request::get(url).body(())) else { continue };
        let Ok((response, _)) = permit.sender.send_request(request, true) else { continue };
        permit.request_sent();
        let reading = async {
            let mut body = response.await.ok()?.into_body();
            permit.response_received();
            while let Some(data) = body.data().await {
                assert!(!data.ok()?.iter().any(is_foreign), "a response has bytes of the other tenant");
            }
            body.trailers().await.ok()
        };
        complete += usize::from(matches!(timeout(RESPONSE_MAX, reading).await, Ok(Some(_))));
    }
    complete
}

/// The upstream's side of one connection.
struct Server {
    stream: DuplexStream,
    /// The mark of the only tenant that may use it.
    owner: Option<u8>,
    /// All streams so far, with the marks of their tenants.
    streams: Vec<(u32, u8)>,
    /// Frames of the client.
    received: usize,
}

impl Server {
    /// Opens the connection as it should be, sends the frames of the input, and waits for the end. `None`: the
    /// connection ended.
    async fn serve(mut self, input: Arc<[u8]>) -> Option<()> {
        let (choice, script) = cut(&input);
        self.stream.read_exact(&mut [0; 24]).await.ok()?;
        self.stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.ok()?;
        while self.hear().await? != PING {}
        if choice & 0x80 == 0 {
            self.hear_all().await?;
        }
        self.send(script, choice & 0x7f).await?;
        loop {
            self.hear().await?;
        }
    }

    /// Sends frames: type, flags, stream and length are a byte each, followed by the payload. The stream is one of the
    /// client's, or with the highest bit any other.
    async fn send(&mut self, mut script: &[u8], piece: usize) -> Option<()> {
        while let Some((&[kind, flags, place, length], rest)) = script.split_first_chunk::<4>() {
            let (payload, rest) = rest.split_at(usize::from(length).min(rest.len()));
            let mut payload = payload.to_vec();
            script = rest;
            let of_client = || self.streams.iter().cycle().nth(usize::from(place)).copied();
            let other = (u32::from(place & 0x7f), 0);
            let (id, mark) = if place & 0x80 == 0 { of_client().unwrap_or_default() } else { other };
            let bytes = match kind & 0x0f {
                CLOSE => return None,
                // No frame follows: it might be read as the payload of another stream.
                GARBAGE.. => {
                    script = &[];
                    payload.retain(|byte| !is_mark(*byte));
                    payload
                }
                DATA => {
                    // The first byte of a padded frame is the length of the padding.
                    payload.iter_mut().skip(usize::from(flags & PADDED != 0)).for_each(|byte| *byte = mark);
                    frame(DATA, flags, id, &payload)
                }
                kind => frame(kind, flags, id, &payload),
            };
            let piece = if piece == 0 { bytes.len() } else { piece.max(bytes.len() / 8) };
            for part in bytes.chunks(piece.max(1)) {
                self.stream.write_all(part).await.ok()?;
                // The client reads it.
                yield_now().await;
            }
            self.hear_all().await?;
        }
        Some(())
    }

    /// Reads frames until the client is silent.
    async fn hear_all(&mut self) -> Option<()> {
        while let Ok(received) = timeout(SILENCE, self.hear()).await {
            received?;
        }
        Some(())
    }

    /// Reads a frame, acknowledges it if it must be, and returns its type.
    async fn hear(&mut self) -> Option<u8> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let [_, high, low, kind, flags, id @ ..] = head;
        let mut payload = vec![0; usize::from(u16::from_be_bytes([high, low]))];
        self.stream.read_exact(&mut payload).await.ok()?;
        self.received += 1;
        assert!(self.received <= FRAMES_MAX, "the client sends frames without end");
        match kind {
            HEADERS => {
                let mark = payload.last().copied().unwrap_or_default();
                assert!(is_mark(mark), "{payload:x?} is no tenant's request");
                assert!(self.owner.is_none_or(|owner| owner == mark), "two tenants share a connection");
                self.streams.push((u32::from_be_bytes(id), mark));
            }
            SETTINGS if flags & ACK == 0 => self.stream.write_all(&frame(kind, ACK, 0, &[])).await.ok()?,
            PING if flags & ACK == 0 => self.stream.write_all(&frame(kind, ACK, 0, &payload)).await.ok()?,
            _ => {}
        }
        Some(kind)
    }
}

fn is_mark(byte: u8) -> bool {
    TENANTS.iter().any(|(mark, _)| *mark == byte)
}

/// A frame with a payload of less than 256 bytes.
fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap_or_default();
    [&[0, 0, length, kind, flags][..], &id.to_be_bytes(), payload].concat()
}
