//! Connections that fall silent while new ones work, by a clock that moves when all tasks wait.

use std::sync::atomic::AtomicUsize;

use tokio::io::{DuplexStream, duplex};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::*;
use crate::Tenant;

const POOL_KEY: PoolKey = PoolKey { tenant: Tenant(1), tls_config: None };

const LIMITS: ConnectionLimits = ConnectionLimits { age: Duration::from_hours(10), requests: 1_000_000 };

/// How long a response is waited for.
const RESPONSE_MAX: Duration = Duration::from_mins(1);

/// An upstream in memory, and connections to it.
struct Scene {
    pool: Http2Pool,
    opened: AtomicUsize,
    silence: watch::Sender<()>,
}

impl Scene {
    fn new() -> Arc<Self> {
        let pool = Http2Pool::new(LIMITS, Arc::new(Semaphore::new(1_024)));
        Arc::new(Self { pool, opened: AtomicUsize::new(0), silence: watch::Sender::new(()) })
    }

    /// All connections that are open fall silent.
    fn falls_silent(&self) {
        self.silence.send_replace(());
    }

    fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    fn open(&self) -> connection::PendingPermit {
        self.opened.fetch_add(1, Ordering::Relaxed);
        let (here, there) = duplex(1 << 20);
        tokio::spawn(serve(there, self.silence.subscribe()));
        self.pool.add(POOL_KEY, RESPONSE_MAX, std::future::ready(Ok(here)))
    }

    async fn acquire(&self, may_be_repeated: bool) -> StreamPermit {
        let requirements = Requirements { pool_key: POOL_KEY, may_be_repeated, received_after: None };
        loop {
            let permit = self.pool.try_acquire(&requirements).unwrap_or_else(|| self.open());
            if let Acquired::Permit(permit) = permit.ready().await.unwrap() {
                return permit;
            }
        }
    }

    /// Whether a safe request with a response after this time is served.
    async fn serves(&self, takes: Duration) -> bool {
        self.serves_one(takes, true).await
    }

    async fn serves_one(&self, takes: Duration, may_be_repeated: bool) -> bool {
        let mut permit = self.acquire(may_be_repeated).await;
        let request = http::Request::get(format!("http://a.example/{}", takes.as_millis())).body(()).unwrap();
        let (response, _) = permit.sender.send_request(request, true).unwrap();
        permit.request_sent();
        let began = Instant::now();
        match timeout(RESPONSE_MAX, response).await {
            Ok(Ok(_)) => {
                permit.response_received();
                true
            }
            Ok(Err(_)) => false,
            Err(_) => {
                if permit.is_silent_since(began) {
                    permit.drain();
                }
                false
            }
        }
    }
}

/// Sends a request every `pause` without waiting for earlier ones; returns which were served.
async fn steady(scene: &Arc<Scene>, pause: Duration, requests: usize, may_be_repeated: bool) -> Vec<bool> {
    let mut asking = JoinSet::new();
    for number in 0..requests {
        sleep(pause).await;
        let scene = scene.clone();
        asking.spawn(async move { (number, scene.serves_one(Duration::ZERO, may_be_repeated).await) });
    }
    let mut served = asking.join_all().await;
    served.sort_unstable();
    served.into_iter().map(|(_, served)| served).collect()
}

/// Answers each request after the milliseconds in its path, until its connection falls silent.
async fn serve(stream: DuplexStream, mut silence: watch::Receiver<()>) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = silence.changed() => break,
            accepted = connection.accept() => accepted,
        };
        let Some(Ok((request, mut respond))) = accepted else { return };
        let takes = request.uri().path().trim_start_matches('/').parse().unwrap();
        tokio::spawn(async move {
            sleep(Duration::from_millis(takes)).await;
            let _ = respond.send_response(http::Response::new(()), true);
        });
    }
    // It neither reads nor closes.
    std::future::pending::<()>().await;
}

/// A long poll, silence in which PINGs are answered, and then a connection that is dead when the next request comes.
#[tokio::test(start_paused = true)]
async fn a_connection_that_dies_after_a_long_silence_loses_one_request() {
    let scene = Scene::new();
    assert!(scene.serves(Duration::from_secs(59)).await);
    sleep(Duration::from_secs(39)).await;
    scene.falls_silent();
    let served = steady(&scene, Duration::from_secs(1), 310, true).await;
    assert_eq!(served.iter().filter(|served| !**served).count(), 1, "{served:?}");
    assert_eq!(scene.opened(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_dies_under_steady_traffic_is_in_doubt_after_two_seconds() {
    let scene = Scene::new();
    let pause = Duration::from_millis(250);
    assert!(steady(&scene, pause, 80, true).await.iter().all(|served| *served));
    scene.falls_silent();
    let served = steady(&scene, pause, 120, true).await;
    let lost = served.iter().filter(|served| !**served).count();
    assert!(lost <= 8 && served[lost..].iter().all(|served| *served), "{served:?}");
    assert_eq!(scene.opened(), 2);
}

/// Fifteen a second that may not be sent once more: those of the first 250 ms are lost.
#[tokio::test(start_paused = true)]
async fn a_dead_connection_loses_the_requests_of_a_quarter_of_a_second() {
    let scene = Scene::new();
    let pause = Duration::from_millis(66);
    assert!(steady(&scene, pause, 60, false).await.iter().all(|served| *served));
    scene.falls_silent();
    let served = steady(&scene, pause, 60, false).await;
    let lost = served.iter().filter(|served| !**served).count();
    assert!(lost <= 4 && served[lost..].iter().all(|served| *served), "{served:?}");
    assert_eq!(scene.opened(), 2);
}

/// Responses that take longer than the connection may be silent: the answers to PING tell that it is there.
#[tokio::test(start_paused = true)]
async fn slow_responses_to_unsafe_requests_end_no_connection() {
    let scene = Scene::new();
    for _ in 0..20 {
        let asked = [Duration::ZERO, Duration::from_millis(200), Duration::from_millis(400)].map(async |pause| {
            sleep(pause).await;
            scene.serves_one(Duration::from_millis(600), false).await
        });
        assert!(futures_util::future::join_all(asked).await.into_iter().all(|served| served));
    }
    assert_eq!(scene.opened(), 1);
}

/// One request after the other, each sent when the one before is over.
#[tokio::test(start_paused = true)]
async fn each_connection_that_dies_costs_one_request_of_a_client_that_waits() {
    let scene = Scene::new();
    for round in 0..5 {
        assert!(scene.serves(Duration::ZERO).await);
        scene.falls_silent();
        assert!(!scene.serves(Duration::ZERO).await, "round {round}");
        assert!(scene.serves(Duration::ZERO).await, "round {round}");
    }
    assert_eq!(scene.opened(), 6);
}

/// Responses that take half a minute, and a request every three seconds: a PING of each request would be too many.
#[tokio::test(start_paused = true)]
async fn slow_responses_cost_few_connections_and_no_request() {
    let scene = Scene::new();
    let mut asking = JoinSet::new();
    for _ in 0..100 {
        let asked = scene.clone();
        asking.spawn(async move { asked.serves(Duration::from_secs(30)).await });
        sleep(Duration::from_secs(3)).await;
    }
    assert!(asking.join_all().await.into_iter().all(|served| served));
    assert!(scene.opened() <= 6, "{} connections", scene.opened());
}

#[tokio::test(start_paused = true)]
async fn the_connection_that_received_last_gets_the_next_request() {
    let scene = Scene::new();
    let older = scene.acquire(true).await;
    let Acquired::Permit(newer) = scene.open().ready().await.unwrap() else { panic!("a new connection") };
    sleep(Duration::from_millis(10)).await;
    for permit in [&older, &newer, &older] {
        let (response, _) = permit
            .sender
            .clone()
            .send_request(http::Request::get("http://a.example/0").body(()).unwrap(), true)
            .unwrap();
        response.await.unwrap();
        sleep(Duration::from_millis(10)).await;
        assert!(Arc::ptr_eq(&scene.acquire(true).await.connection, &permit.connection));
    }
}

/// A server that sheds load, and a gateway without room to keep its connection.
#[tokio::test]
async fn a_server_that_allows_no_request_is_dialled_seldom() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut serving = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            serving.spawn(async move {
                let mut options = h2::server::Builder::new();
                let connection = options.max_concurrent_streams(0).handshake::<_, Bytes>(stream).await;
                if let Ok(mut connection) = connection {
                    connection.accept().await;
                }
            });
        }
    });
    let (pool, dialled) = (Http2Pool::new(LIMITS, Arc::new(Semaphore::new(0))), AtomicUsize::new(0));
    let connect = || {
        dialled.fetch_add(1, Ordering::Relaxed);
        async move { Ok(Stream::Plain(tokio::net::TcpStream::connect(address).await.unwrap())) }
    };
    let requirements = Requirements { pool_key: POOL_KEY, may_be_repeated: true, received_after: None };
    let refused = pool.acquire(&requirements, Duration::from_millis(600), connect).await.unwrap_err();
    assert_eq!(refused.kind, DialFailure::TimedOut, "{refused:?}");
    // The pauses are at least 10, 20, 40, 80, 160, 250 and 250 ms.
    let dialled = dialled.load(Ordering::Relaxed);
    assert!((2..=8).contains(&dialled), "{dialled} connections");
}

#[test]
fn pauses_between_dials_double_up_to_half_a_second() {
    for (earlier, longest) in [(0, 20), (1, 40), (2, 80), (3, 160), (4, 320), (5, 500), (6, 500), (u32::MAX, 500)] {
        let pauses: Vec<_> = (0..100).map(|_| redial_after(earlier).as_millis()).collect();
        assert!(pauses.iter().all(|pause| (longest / 2..=longest).contains(pause)), "{earlier}: {pauses:?}");
        assert!(pauses.iter().any(|pause| pause != &pauses[0]), "{earlier}: they are spread");
    }
}
