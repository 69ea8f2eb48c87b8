//! A background task that panics is started again, and the others go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use chassis::clock::Clock as _;
use domains_service::{Authorities, CaaIdentity, IssueError, IssueRequest, Issued, Issuer};
use serde_json::{Value, json};

use crate::stores;
use crate::world::{Bend, Platform, eventually, local_authority};

/// An authority that panics when it is first asked to abandon an order.
struct Defective {
    abandoned: AtomicU32,
}

#[async_trait]
impl Issuer for Defective {
    #[expect(clippy::unnecessary_literal_bound, reason = "the trait's signature")]
    fn name(&self) -> &str {
        "defective.ca"
    }

    fn caa(&self) -> Option<CaaIdentity> {
        None
    }

    async fn issue(&self, _: &IssueRequest) -> Result<Issued, IssueError> {
        unreachable!("no public name is added")
    }

    async fn abandon(&self, _: &str) -> Result<(), IssueError> {
        assert_ne!(self.abandoned.fetch_add(1, Ordering::SeqCst), 0, "a defect");
        Ok(())
    }
}

// promise: faults.23
#[tokio::test]
async fn a_panic_ends_one_background_task_which_is_started_again() {
    let defective = Arc::new(Defective { abandoned: AtomicU32::new(0) });
    let authorities = Authorities { local: Some(local_authority()), public: vec![defective.clone()] };
    let platform = Platform::bent(Bend { authorities: Some(authorities), ..Bend::default() }).await;
    platform.project("demo", "pro").await;
    let now = platform.clock.now().0;
    let order = format!(
        "INSERT INTO acme_orders (authority, hostname, url, created_at, abandoned_at)
             VALUES ('defective.ca', 'gone.test', 'https://ca.test/1', {now}, {now});"
    );
    stores::execute(platform.directory.path(), &order).await;
    let panicked = eventually(async || {
        let status = platform.operator("GET", "/status", Value::Null).await.body;
        let tasks = status["panicked_tasks"].clone();
        if tasks == json!([]) { Err(format!("{status}")) } else { Ok(tasks) }
    })
    .await;
    assert_eq!((&panicked[0]["task"], &panicked[0]["panics"]), (&json!("abandon_orders"), &json!(1)));
    platform.local_domain("demo", json!({ "name": "others-go-on.localhost" })).await;
    eventually(async || {
        let directory = platform.directory.path();
        let left = stores::value(directory, "acme_orders", "CAST(COUNT(*) AS TEXT)", "1 = 1").await;
        if left.as_deref() == Some("0") { Ok(()) } else { Err(format!("{left:?} orders are left")) }
    })
    .await;
    assert_eq!(defective.abandoned.load(Ordering::SeqCst), 2);
    let metrics = platform.metrics().await;
    for line in [
        "domains_task_restarts_total{task=\"abandon_orders\"} 1\n",
        "domains_task_restarts_total{task=\"cleanup\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}
