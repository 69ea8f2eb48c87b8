//! Faults of the store, as clients see them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use chassis::clock::ManualClock;
use chassis::shutdown::Shutdown;
use contract::project::ProjectUid;
use contract::time::UnixMillis;
use orders_service::Orders;
use orders_service::order::{CancelError, Order, ShipError, Status};
use orders_service::store::{
    ChangeError, CreateError, Created, Edition, Event, FaultKind, Idempotency, ImportError, NewOrder, OrderStore,
    PageQuery, StoreError, Summary, Waiting,
};
use reqwest::{Client, Method, Response};

use crate::world::{NOW, caller, config, refusal, signed};

/// A store of ten thousand orders that fails from the `fails_from`th batch on.
struct Failing {
    kind: FaultKind,
    batches: AtomicU32,
    fails_from: u32,
}

const ORDERS: i64 = 10_000;

impl Failing {
    fn fault(&self) -> StoreError {
        StoreError::new(self.kind, "a test says so")
    }
}

#[async_trait]
impl OrderStore for Failing {
    fn store_id(&self) -> &'static str {
        "failing"
    }

    async fn edition(&self, _: &ProjectUid) -> Result<Edition, StoreError> {
        Ok(Edition { version: 1, orders: ORDERS })
    }

    async fn batch(&self, _: &ProjectUid, after: Option<i64>, limit: u32) -> Result<Vec<Order>, StoreError> {
        if self.batches.fetch_add(1, Ordering::SeqCst) >= self.fails_from {
            return Err(self.fault());
        }
        let first = after.map_or(0, |after| after + 1);
        let ids = first..(first + i64::from(limit)).min(ORDERS);
        let status = Status::Pending;
        Ok(ids.map(|id| Order { id, pet_id: None, quantity: None, ship_date: None, complete: None, status }).collect())
    }

    async fn page(&self, _: &ProjectUid, _: &PageQuery) -> Result<Vec<Order>, StoreError> {
        Err(self.fault())
    }

    async fn find(&self, _: &ProjectUid, _: i64) -> Result<Option<Order>, StoreError> {
        Err(self.fault())
    }

    async fn events(&self, _: &ProjectUid, _: i64) -> Result<Option<Vec<Event>>, StoreError> {
        Err(self.fault())
    }

    async fn knows_pet(&self, _: &ProjectUid, _: i64) -> Result<bool, StoreError> {
        Err(self.fault())
    }

    async fn summary(&self, _: &ProjectUid) -> Result<Summary, StoreError> {
        Err(self.fault())
    }

    async fn cancel(&self, _: &ProjectUid, _: i64, _: UnixMillis) -> Result<Order, ChangeError<CancelError>> {
        Err(self.fault().into())
    }

    async fn ship(&self, _: &ProjectUid, _: i64, _: UnixMillis) -> Result<Order, ChangeError<ShipError>> {
        Err(self.fault().into())
    }

    async fn create(
        &self,
        _: &ProjectUid,
        _: NewOrder,
        _: Option<Idempotency>,
        _: UnixMillis,
    ) -> Result<Created, CreateError> {
        Err(self.fault().into())
    }

    async fn import(&self, _: &ProjectUid, _: Vec<Order>) -> Result<u64, ImportError> {
        Err(self.fault().into())
    }

    async fn erase(&self, _: &ProjectUid, _: UnixMillis) -> Result<(), StoreError> {
        Err(self.fault())
    }

    async fn undelivered(&self, _: u32) -> Result<Waiting, StoreError> {
        Ok(Waiting::default())
    }

    async fn forget(&self, _: Vec<i64>, _: u32) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn close(&self) {}
}

struct Service {
    http: String,
    admin: String,
    _directory: tempfile::TempDir,
}

impl Service {
    async fn over(kind: FaultKind, fails_from: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let orders = Orders::over(Arc::new(Failing { kind, batches: AtomicU32::new(0), fails_from }));
        let clock = Arc::new(ManualClock::at(NOW));
        let config = config(&directory.path().join("none.db"), "");
        let running = orders_service::start_with(config, orders, clock, Shutdown::new()).await.unwrap();
        let url = |listener| format!("http://{}", running.address(listener).unwrap());
        Self { http: url("http"), admin: url("admin"), _directory: directory }
    }

    async fn ask(&self, method: Method, target: &str) -> Response {
        let request = Client::new().request(method, format!("{}{target}", self.http));
        signed(request, Some(caller()), NOW).send().await.unwrap()
    }
}

// promise: orders.16
#[tokio::test]
async fn a_fault_of_the_store_is_503_with_retry_after_and_counted_by_kind() {
    for (kind, code) in [
        (FaultKind::Busy, "storage_unavailable"),
        (FaultKind::Full, "storage_full"),
        (FaultKind::Corrupt, "storage_unavailable"),
        (FaultKind::Io, "storage_unavailable"),
    ] {
        let service = Service::over(kind, 0).await;
        let asked = [
            (Method::GET, "/v1/store/orders"),
            (Method::DELETE, "/v1/store/orders/1"),
            (Method::GET, "/v1/pets/1"),
            (Method::GET, "/v2/store/orders/1"),
        ];
        for (method, target) in asked.clone() {
            let response = service.ask(method, target).await;
            assert_eq!(response.headers()["retry-after"], "1", "{target}");
            assert_eq!(refusal(response).await, (503, code.to_owned()), "{target}");
        }
        let metrics = reqwest::get(format!("{}/metrics", service.admin)).await.unwrap().text().await.unwrap();
        let counted = format!("orders_store_errors_total{{kind=\"{}\"}} {}", kind.as_str(), asked.len());
        assert!(metrics.contains(&counted), "{counted} is missing from\n{metrics}");
        assert!(metrics.contains("orders_cancel_total{result=\"error\"} 1"));
        // A failing store does not make the process unready: a restart would not help.
        assert_eq!(reqwest::get(format!("{}/readyz", service.admin)).await.unwrap().status(), 200);
    }
}

// rule: 8.5
// promise: orders.6
#[tokio::test]
async fn a_list_that_fails_ends_without_its_closing_bracket_and_without_end_of_body() {
    for encoding in ["identity", "gzip", "br", "zstd"] {
        for fails_from in 1..5 {
            let service = Service::over(FaultKind::Io, fails_from).await;
            let request = Client::new().get(format!("{}/v1/store/orders", service.http));
            let request = request.header("accept-encoding", encoding);
            let sent = signed(request, Some(caller()), NOW).send().await;
            // An immediate fault can close the connection before the head was flushed; the client notices that too.
            if let Ok(response) = sent {
                assert_eq!(response.status(), 200);
                let read = response.bytes().await;
                assert!(read.is_err(), "{encoding}, {fails_from}: a whole body of {} bytes", read.unwrap().len());
            }
        }
    }
    let service = Service::over(FaultKind::Io, u32::MAX).await;
    let whole = service.ask(Method::GET, "/v1/store/orders").await.bytes().await.unwrap();
    assert_eq!(serde_json::from_slice::<Vec<serde_json::Value>>(&whole).unwrap().len(), 10_000);
}
