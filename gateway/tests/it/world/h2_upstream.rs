//! An upstream over HTTP/2; the test decides the answer to each request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

/// A request as it arrived, and where its response goes.
pub(crate) struct H2Request {
    /// Which connection it came on, counted from 0.
    pub(crate) connection: usize,
    pub(crate) head: http::request::Parts,
    pub(crate) body: RecvStream,
    pub(crate) respond: SendResponse<Bytes>,
}

type Serve = dyn Fn(H2Request) -> BoxFuture<'static, ()> + Send + Sync;

/// The upstream. It ends with the test's runtime.
pub(crate) struct H2Upstream {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    goodbye: watch::Sender<()>,
}

impl H2Upstream {
    /// Serves every request in its own task, this many at once per connection.
    pub(crate) async fn start<F>(streams_max: u32, serve: impl Fn(H2Request) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let goodbye = watch::Sender::new(());
        let said = goodbye.clone();
        let (counted, serve): (_, Arc<Serve>) =
            (connections.clone(), Arc::new(move |request| -> BoxFuture<'static, ()> { Box::pin(serve(request)) }));
        tokio::spawn(async move {
            let mut served = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let number = counted.fetch_add(1, Ordering::Relaxed);
                served.spawn(drive(stream, (number, streams_max), serve.clone(), said.subscribe()));
            }
        });
        Self { address, connections, goodbye }
    }

    /// The same with 100 at once, and the requests passed to the test.
    pub(crate) async fn taken() -> (Self, mpsc::UnboundedReceiver<H2Request>) {
        Self::limited(100).await
    }

    /// The same with this maximum per connection.
    pub(crate) async fn limited(streams_max: u32) -> (Self, mpsc::UnboundedReceiver<H2Request>) {
        #[expect(clippy::disallowed_methods, reason = "a test sends few requests")]
        let (give, taken) = mpsc::unbounded_channel();
        let upstream = Self::start(streams_max, move |request| {
            let _ = give.send(request);
            std::future::ready(())
        });
        (upstream.await, taken)
    }

    /// Sends GOAWAY on all open connections, which finish the requests in progress.
    pub(crate) fn goes_away(&self) {
        self.goodbye.send_replace(());
    }

    /// How many connections were opened.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

async fn drive(
    stream: TcpStream,
    (number, streams_max): (usize, u32),
    serve: Arc<Serve>,
    mut goodbye: watch::Receiver<()>,
) {
    let mut options = h2::server::Builder::new();
    options.max_concurrent_streams(streams_max);
    let Ok(mut connection) = options.handshake::<_, Bytes>(stream).await else { return };
    let mut serving = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            Ok(()) = goodbye.changed() => {
                connection.graceful_shutdown();
                continue;
            }
            accepted = connection.accept() => accepted,
        };
        let Some(Ok((request, respond))) = accepted else { return };
        let (head, body) = request.into_parts();
        serving.spawn(serve(H2Request { connection: number, head, body, respond }));
    }
}

impl H2Request {
    /// Begins a response.
    pub(crate) fn begin(&mut self, status: u16, fields: &[(&str, &str)], ends: bool) -> SendStream<Bytes> {
        let mut head = http::Response::builder().status(status);
        for (name, value) in fields {
            head = head.header(*name, *value);
        }
        self.respond.send_response(head.body(()).unwrap(), ends).expect("a stream")
    }

    /// Sends a response without a body.
    pub(crate) async fn empty(self) {
        self.answer(&[], "").await;
    }

    /// Sends a whole response.
    pub(crate) async fn answer(mut self, fields: &[(&str, &str)], body: impl Into<Bytes>) {
        let mut stream = self.begin(200, fields, false);
        let _ = send(&mut stream, body.into(), true).await;
    }

    /// Reads the body to its end.
    pub(crate) async fn read(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(Ok(piece)) = self.body.data().await {
            let _ = self.body.flow_control().release_capacity(piece.len());
            all.extend_from_slice(&piece);
        }
        all
    }
}

/// Sends as fast as the other side reads.
pub(crate) async fn send(stream: &mut SendStream<Bytes>, mut body: Bytes, ends: bool) -> Result<(), h2::Error> {
    if body.is_empty() && ends {
        return stream.send_data(body, true);
    }
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        let room = match stream.capacity() {
            0 => match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
                Some(room) => room?,
                None => return Ok(()),
            },
            room => room,
        };
        let piece = body.split_to(room.min(body.len()));
        stream.send_data(piece, ends && body.is_empty())?;
    }
    Ok(())
}

/// A relay before an upstream over HTTP/2: the first connection gets `requests` heads and then a GOAWAY that none of
/// them was begun; later ones work.
pub(crate) async fn going_away(to: SocketAddr, requests: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut served = tokio::task::JoinSet::new();
        let (stream, _) = listener.accept().await.unwrap();
        served.spawn(go_away(stream, requests));
        while let Ok((mut outside, _)) = listener.accept().await {
            served.spawn(async move {
                let Ok(mut inside) = TcpStream::connect(to).await else { return };
                let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
            });
        }
    });
    address
}

async fn go_away(mut stream: TcpStream, requests: usize) {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    let mut heads = 0;
    let mut frame = [0; 9];
    while stream.read_exact(&mut frame).await.is_ok() {
        let mut payload = vec![0; usize::from(frame[0]) << 16 | usize::from(frame[1]) << 8 | usize::from(frame[2])];
        stream.read_exact(&mut payload).await.unwrap();
        let answer: Vec<u8> = match (frame[3], frame[4] & 1) {
            (4, 0) => vec![0, 0, 0, 4, 1, 0, 0, 0, 0],
            (6, 0) => [&[0, 0, 8, 6, 1, 0, 0, 0, 0], payload.as_slice()].concat(),
            (1, _) => {
                heads += 1;
                if heads != requests {
                    continue;
                }
                // The last begun stream: 0. No error.
                vec![0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
            }
            _ => continue,
        };
        stream.write_all(&answer).await.unwrap();
    }
}

/// A server that allows no stream until `allowed`, and then answers every request with 200. Counts its connections.
pub(crate) async fn pausing(allowed: watch::Receiver<bool>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = connections.clone();
    tokio::spawn(async move {
        let mut served = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            served.spawn(pause(stream, allowed.clone()));
        }
    });
    (address, connections)
}

/// SETTINGS with this number of streams.
fn settings(streams: u8) -> [u8; 15] {
    [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, streams]
}

async fn pause(mut stream: TcpStream, mut allowed: watch::Receiver<bool>) -> Option<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.ok()?;
    stream.write_all(&settings(0)).await.ok()?;
    let (mut reader, mut writer) = stream.into_split();
    let (answers, mut taken) = mpsc::channel::<Vec<u8>>(16);
    let reading = async move {
        let mut frame = [0; 9];
        while reader.read_exact(&mut frame).await.is_ok() {
            let mut payload = vec![0; usize::from(frame[0]) << 16 | usize::from(frame[1]) << 8 | usize::from(frame[2])];
            reader.read_exact(&mut payload).await.ok()?;
            let stream = &frame[5..];
            let answer: Vec<u8> = match (frame[3], frame[4] & 1) {
                (4, 0) => vec![0, 0, 0, 4, 1, 0, 0, 0, 0],
                (6, 0) => [&[0, 0, 8, 6, 1, 0, 0, 0, 0], payload.as_slice()].concat(),
                // `:status: 200` of the static table, and the end of the stream.
                (1, _) => [&[0, 0, 1, 1, 5], stream, &[0x88]].concat(),
                _ => continue,
            };
            answers.send(answer).await.ok()?;
        }
        Some(())
    };
    let writing = async move {
        let mut is_paused = true;
        loop {
            let answer = tokio::select! {
                Ok(()) = allowed.changed(), if is_paused => {
                    is_paused = false;
                    Some(settings(100).to_vec())
                }
                answer = taken.recv() => answer,
            };
            let Some(answer) = answer else { return Some(()) };
            writer.write_all(&answer).await.ok()?;
        }
    };
    tokio::select! { ended = reading => ended, ended = writing => ended }
}
