//! Clients that send requests at a steady rate, half over HTTP/1.1 keep-alive and half over HTTP/2, and record
//! failures.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Shared;
use crate::world::client::{Ask, Client, Reply};
use crate::world::eventually;
use crate::world::h2::H2;

/// Workers of each protocol; each has one request in progress at most.
const WORKERS: u32 = 16;

#[derive(Default)]
struct Book {
    h1: AtomicU64,
    h2: AtomicU64,
    /// Failed requests: the worker and the error.
    failed: Mutex<Vec<(usize, String)>>,
    slowest: Mutex<Duration>,
}

pub(super) struct Load {
    book: Arc<Book>,
    end: CancellationToken,
    workers: JoinSet<()>,
}

/// The results of all requests.
pub(super) struct Outcome {
    pub(super) h1: u64,
    pub(super) h2: u64,
    pub(super) failed: Vec<(usize, String)>,
    pub(super) slowest: Duration,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { h1, h2, failed, slowest } = self;
        write!(f, "{h1} requests over HTTP/1.1 and {h2} over HTTP/2 answered with 200, slowest {slowest:?}, ")?;
        write!(f, "{} failed", failed.len())?;
        failed.iter().take(5).try_for_each(|(worker, how)| write!(f, "; worker {worker}: {how}"))
    }
}

impl Load {
    pub(super) fn start(balancer: &Shared, ask: &Ask, rate: u32) -> Self {
        let (book, end) = (Arc::<Book>::default(), CancellationToken::new());
        let mut workers = JoinSet::new();
        let pause = Duration::from_secs(1) * (2 * WORKERS) / rate;
        let pool = Arc::new(Pool::default());
        for number in 0..2 * WORKERS {
            let way = if number < WORKERS { Way::H1([const { None }; 2]) } else { Way::H2(pool.clone()) };
            let worker = Worker {
                number: usize::try_from(number).unwrap(),
                way,
                balancer: balancer.clone(),
                ask: ask.clone(),
                book: book.clone(),
            };
            // Spread over the pause, so that the rate is even.
            let first = tokio::time::Instant::now() + pause * number / (2 * WORKERS);
            let end = end.clone();
            workers.spawn(async move { worker.run(first, pause, end).await });
        }
        Self { book, end, workers }
    }

    fn count(&self) -> u64 {
        self.book.h1.load(Ordering::SeqCst) + self.book.h2.load(Ordering::SeqCst)
    }

    /// Waits for this number of further answers.
    pub(super) async fn answered(&self, more: u64) {
        let wanted = self.count() + more;
        eventually("answers", async || (self.count() >= wanted).then_some(())).await;
    }

    pub(super) async fn end(mut self) -> Outcome {
        self.end.cancel();
        while let Some(ended) = self.workers.join_next().await {
            ended.expect("a worker");
        }
        Outcome {
            h1: self.book.h1.load(Ordering::SeqCst),
            h2: self.book.h2.load(Ordering::SeqCst),
            failed: self.book.failed.lock().clone(),
            slowest: *self.book.slowest.lock(),
        }
    }
}

/// One HTTP/2 connection per gateway, shared by all workers.
#[derive(Default)]
struct Pool([tokio::sync::Mutex<Open>; 2]);

/// The life of the gateway that a connection belongs to, and the connection.
type Open = Option<(u64, Arc<H2>)>;

/// A worker's protocol and connection. A connection belongs to one start of a gateway.
enum Way {
    H1([Option<(u64, Client)>; 2]),
    H2(Arc<Pool>),
}

struct Worker {
    number: usize,
    way: Way,
    balancer: Shared,
    ask: Ask,
    book: Arc<Book>,
}

impl Worker {
    async fn run(mut self, first: tokio::time::Instant, pause: Duration, end: CancellationToken) {
        let mut turns = tokio::time::interval_at(first, pause);
        let mut turn = self.number;
        loop {
            tokio::select! {
                () = end.cancelled() => return,
                _ = turns.tick() => {}
            }
            turn = turn.wrapping_add(1);
            self.once(turn).await;
        }
    }

    /// One request, to whichever gateway is ready.
    async fn once(&mut self, turn: usize) {
        let began = Instant::now();
        let answer = loop {
            let Some((node, life, place)) = self.balancer.choose(turn) else {
                break Err("no gateway is ready".to_owned());
            };
            let asked = match &mut self.way {
                Way::H1(open) => ask_h1(open, node, life, place.https, &self.ask).await,
                Way::H2(pool) => ask_h2(pool, node, life, place.https, &self.ask).await,
            };
            match asked {
                Some(answer) => break answer,
                None => self.balancer.refused(node, life),
            }
        };
        match answer {
            Ok(reply) if reply.status == 200 && reply.complete => {
                let counter = if matches!(self.way, Way::H1(_)) { &self.book.h1 } else { &self.book.h2 };
                counter.fetch_add(1, Ordering::SeqCst);
                let mut slowest = self.book.slowest.lock();
                *slowest = slowest.max(began.elapsed());
            }
            Ok(reply) => self.failed(format!("{reply:?}")),
            Err(how) => self.failed(how),
        }
    }

    fn failed(&self, how: String) {
        self.book.failed.lock().push((self.number, how));
    }
}

/// `None`: no connection could be opened, and nothing was sent.
type Attempt = Option<Result<Reply, String>>;

async fn ask_h1(
    open: &mut [Option<(u64, Client)>; 2],
    node: usize,
    life: u64,
    to: std::net::SocketAddr,
    ask: &Ask,
) -> Attempt {
    let mut client = match open[node].take() {
        Some((of, client)) if of == life => client,
        _ => Client::try_tls(to, &ask.host).await.ok()?,
    };
    let Some(reply) = client.try_ask(ask).await else {
        return Some(Err("the connection ended without an answer".to_owned()));
    };
    if reply.header("connection").is_none_or(|word| word != "close") {
        open[node] = Some((life, client));
    }
    Some(Ok(reply))
}

async fn ask_h2(pool: &Pool, node: usize, life: u64, to: std::net::SocketAddr, ask: &Ask) -> Attempt {
    let connection = {
        let mut open = pool.0[node].lock().await;
        match &*open {
            Some((of, connection)) if *of == life => connection.clone(),
            _ => {
                let connection = Arc::new(H2::try_connect(to, &ask.host).await.ok()?);
                *open = Some((life, connection.clone()));
                connection
            }
        }
    };
    let asked = connection.try_ask(ask).await;
    if asked.is_err() {
        let mut open = pool.0[node].lock().await;
        if open.as_ref().is_some_and(|(_, held)| Arc::ptr_eq(held, &connection)) {
            *open = None;
        }
    }
    Some(asked.map_err(|error| error.to_string()))
}
