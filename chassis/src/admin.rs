//! The admin listener: health, metrics, and routes that the process adds. Never on a data port.
//!
//! It answers requests for IP addresses, `localhost` and the hosts in its settings ([`answer_to`]). A web page in an
//! operator's browser has its own host name, even if that name now resolves here (DNS rebinding), and gets no answer.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use parking_lot::Mutex;

use crate::config::EffectiveSettings;
use crate::health::Health;
use crate::metrics::{self, Registry};
use crate::refusal::Refusal;

/// Concurrent requests of the admin listener: many scrapes wait for each other, not for the data plane.
pub const CONCURRENT_REQUESTS_MAX: usize = 8;

#[derive(Clone)]
struct Admin {
    health: Health,
    registry: Registry,
}

/// `/livez`, `/readyz` and `/metrics`.
pub fn router(health: Health, registry: Registry) -> Router {
    Router::new()
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_text))
        .with_state(Admin { health, registry })
}

/// `GET {path}`: every effective setting that was given. For operators only: the caller must guard it.
pub fn settings<S: Clone + Send + Sync + 'static>(path: &str, effective: Arc<Mutex<EffectiveSettings>>) -> Router<S> {
    Router::new().route(path, get(move || async move { axum::Json(effective.lock().to_json()) }))
}

async fn readyz(State(admin): State<Admin>) -> Response {
    let status = if admin.health.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, axum::Json(admin.health.report())).into_response()
}

async fn metrics_text(State(admin): State<Admin>) -> Response {
    match metrics::render(&admin.registry) {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}\n")).into_response(),
    }
}

/// A host name of an admin listener, without its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminHost(String);

/// The text is not a host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use names without a port, such as gateway-1 or metrics.internal.example")]
pub struct InvalidAdminHost;

impl FromStr for AdminHost {
    type Err = InvalidAdminHost;

    fn from_str(text: &str) -> Result<Self, InvalidAdminHost> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        if !text.is_empty() && text.len() <= HOST_BYTES_MAX && text.bytes().all(is_name) {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(InvalidAdminHost)
        }
    }
}

/// The longest host name in bytes.
const HOST_BYTES_MAX: usize = 253;

/// Makes `router` answer only requests for an address, `localhost` or one of `hosts`. Requests without a Host come from
/// no browser and pass.
pub fn answer_to(router: Router, hosts: Vec<AdminHost>) -> Router {
    router.layer(middleware::from_fn_with_state(Arc::<[AdminHost]>::from(hosts), require_host))
}

async fn require_host(State(hosts): State<Arc<[AdminHost]>>, request: Request, next: Next) -> Response {
    let fields = request.headers().get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let mut requested = fields.chain(request.uri().authority().map(axum::http::uri::Authority::as_str));
    if requested.all(|host| is_ours(host, &hosts)) {
        return next.run(request).await;
    }
    let message = "This listener answers to addresses, to localhost and to the names in the setting `admin_hosts`.";
    Refusal::new(421, "misdirected_request", message).into_response()
}

fn is_ours(host: &str, hosts: &[AdminHost]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    if let Some(address) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        return address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    name.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4())
        || name.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|known| known.0.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_answers_to_addresses_to_localhost_and_to_its_names() {
        let hosts = ["gateway", "Metrics.Internal.Example"].map(|name| name.parse::<AdminHost>().unwrap());
        for good in [
            "127.0.0.1",
            "127.0.0.1:9901",
            "[::1]:9901",
            "[2001:db8::1]",
            "localhost",
            "LOCALHOST:9901",
            "gateway:9901",
            "metrics.internal.example",
        ] {
            assert!(is_ours(good, &hosts), "{good}");
        }
        for bad in [
            "",
            ":9901",
            "evil.example",
            "evil.example:9901",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1:80:80",
            "2130706433",
            "::1",
            "[::1].evil.example",
            "gateway.evil.example",
            "gateway-2",
            "localhost:x",
        ] {
            assert!(!is_ours(bad, &hosts), "{bad}");
        }
        for bad in ["", "gateway:9901", "http://gateway", "a b", "*"] {
            assert_eq!(bad.parse::<AdminHost>(), Err(InvalidAdminHost), "{bad}");
        }
    }
}
