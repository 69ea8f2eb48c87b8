//! The process dies at each step of an order: the next process finishes that order and orders no second certificate.

use std::sync::Arc;

use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::*;

/// A service that can be killed: all its work ends with its runtime.
struct Victim {
    runtime: Runtime,
    platform: Platform,
}

impl Victim {
    fn start(directory: &Arc<TempDir>, ca: &FakeCa) -> Self {
        let runtime = Runtime::new().unwrap();
        let ours = Authorities { local: Some(local_authority()), public: Vec::new() };
        let bend = Bend {
            directory: Some(directory.clone()),
            authorities: Some(ours),
            acme: vec![ca.settings("one")],
            ..Bend::default()
        };
        let platform = runtime.block_on(async {
            let platform = Platform::bent(bend).await;
            platform.lives("live").await;
            platform
        });
        Self { runtime, platform }
    }

    fn kill(self) {
        self.runtime.shutdown_background();
    }
}

/// Silences the authority at request `at`, kills the service during an order, and starts another. Returns whether the
/// order reached that request.
fn interrupted_at(at: u32, carried_out: bool) -> bool {
    let outside = Runtime::new().unwrap();
    let ca = outside.block_on(FakeCa::start());
    let directory = Arc::new(tempfile::tempdir().unwrap());
    let first = Victim::start(&directory, &ca);
    ca.stop_at(at, carried_out);
    let came_so_far = first.runtime.block_on(async {
        first.platform.project("demo", "pro").await;
        add(&first.platform, SHOP).await;
        let is_over = |domain: &Value| ca.has_stopped() || domain["status"] == "active";
        first.platform.domain_when("demo", SHOP, is_over).await["status"] != "active"
    });
    let dns = first.platform.dns.clone();
    first.kill();
    ca.go_on();
    let second = Victim::start(&directory, &ca);
    second.runtime.block_on(async {
        second.platform.dns.take_over(&dns);
        // The dead process's lease ends, and so does every wait that it began.
        second.platform.clock.advance(Duration::from_mins(5));
        second.platform.domain_in("demo", SHOP, "active").await;
        assert!(published(&second.platform, SHOP).await.is_some());
        assert_eq!(open_challenges(&second.platform).await, 0);
    });
    assert_eq!((ca.orders(), ca.certificates()), (1, 1), "interrupted at request {at}, carried out: {carried_out}");
    second.kill();
    came_so_far
}

// promise: domains.21
#[test]
fn after_a_kill_at_any_request_the_same_order_is_finished() {
    let mut requests = 0;
    while interrupted_at(requests + 1, false) {
        interrupted_at(requests + 1, true);
        requests += 1;
    }
    // Directory, nonces, account, order, authorization, challenge, finalization, certificate.
    assert!(requests >= 8, "an order has more requests than {requests}");
}
