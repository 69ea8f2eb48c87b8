//! Two gateways behind a balancer, under load, while one after the other goes away: by a restart, which fails no
//! request, and by a kill, which fails the requests in progress and no others.
//!
//! `bench/run rolling-restart` runs the same at length, over optimised programs.

mod balancer;
mod load;
pub(crate) mod pair;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::balancer::Balancer;
use self::load::Load;
use self::pair::Pair;
use crate::fleet::extent;

/// Requests per second, half of them over HTTP/1.1 keep-alive, half over HTTP/2.
const RATE: u32 = 500;

/// Time between a gateway's report that it is not ready and its closing of listeners. The balancer checks far more
/// often.
const LAME_DUCK: &str = "500ms";

/// A test runs with fewer requests than `bench/run rolling-restart`: programs that are not optimised need the machine.
fn rate() -> u32 {
    extent("ROLLING_RATE", 200).min(RATE)
}

// promise: edge.20
#[tokio::test(flavor = "multi_thread")]
async fn restarts_of_two_gateways_one_after_the_other_fail_no_request() {
    let restarts = extent("ROLLING_RESTARTS", 2);
    let mut pair = Pair::start(LAME_DUCK).await;
    let balancer = Balancer::start(pair.places());
    balancer.ready(2).await;
    let load = Load::start(&balancer, &pair.ask(), rate());
    load.answered(u64::from(rate()) / 2).await;
    let mut slowest = Duration::ZERO;
    for number in 0..restarts {
        let node = usize::try_from(number).unwrap() % 2;
        let began = Instant::now();
        let status = pair.terminate(node).await;
        slowest = slowest.max(began.elapsed());
        assert!(status.success(), "restart {number}: {status}");
        balancer.ready(1).await;
        pair.run(node);
        balancer.ready(2).await;
        // The restarted gateway has to carry its share before the other one goes.
        load.answered(u64::from(rate()) / 4).await;
    }
    let outcome = load.end().await;
    println!("{restarts} restarts at {} requests per second, slowest end {slowest:?}: {outcome}", rate());
    assert!(outcome.failed.is_empty(), "{outcome}");
    assert!(outcome.h1 > 0 && outcome.h2 > 0, "{outcome}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_in_the_environment_is_not_used_for_the_control_plane() {
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut pair = Pair::prepare("0s").await;
    pair.tell_of_proxy(proxy.local_addr().unwrap());
    pair.run(0);
    pair.serves().await;
    proxy.set_nonblocking(true).unwrap();
    let came = proxy.accept().map(|(_, from)| from);
    assert_eq!(came.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "no connection reached the proxy");
}

// A15, F31
// promise: edge.21
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_gateway_fails_only_its_requests_in_progress() {
    let mut pair = Pair::start(LAME_DUCK).await;
    let balancer = Balancer::start(pair.places());
    balancer.ready(2).await;
    let load = Load::start(&balancer, &pair.ask(), rate());
    load.answered(u64::from(rate()) / 2).await;
    pair.kill(0);
    load.answered(u64::from(rate())).await;
    pair.run(0);
    balancer.ready(2).await;
    load.answered(u64::from(rate()) / 2).await;
    let outcome = load.end().await;
    println!("a kill at {} requests per second: {outcome}", rate());
    // Every worker has one request in progress at most, so it can lose one to a kill.
    let mut losers: Vec<usize> = outcome.failed.iter().map(|(worker, _)| *worker).collect();
    losers.sort_unstable();
    losers.dedup();
    assert_eq!(losers.len(), outcome.failed.len(), "a worker lost more than one request: {outcome}");
}

/// The balancer, shared by all parts of the test.
type Shared = Arc<Balancer>;
