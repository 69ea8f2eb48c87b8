//! HTTP to a certificate authority, with deadlines, bounded answers, and its `Retry-After` for later attempts.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use serde_json::Value;

/// Maximum duration of a request.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(15);

/// Maximum duration of connecting.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// Bytes of an answer; a chain of certificates has some thousands.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// The longest an authority may keep us away with one answer.
const PAUSE_MAX: Duration = Duration::from_hours(7 * 24);

tokio::task_local! {
    /// The `Retry-After` of this order's last refusal.
    static PAUSE: Cell<Option<Duration>>;
    /// Whether the authority has answered a request of this order, and not with a failure of its own.
    static ANSWERED: Cell<bool>;
}

/// Runs an order; within it, [`pause`] returns the pause that the authority asked for, and [`has_answered`] whether it
/// answered at all.
pub(super) async fn noting_answers<T>(order: impl Future<Output = T>) -> T {
    ANSWERED.scope(Cell::new(false), PAUSE.scope(Cell::new(None), order)).await
}

/// Whether the authority has answered within an order.
pub(super) fn has_answered() -> bool {
    ANSWERED.try_with(Cell::get).unwrap_or(false)
}

/// The `Retry-After` of the last refusal, within an order.
pub(super) fn pause() -> Option<Duration> {
    PAUSE.try_with(Cell::get).ok().flatten()
}

/// The HTTP client of one authority.
#[derive(Clone)]
pub(super) struct Transport {
    client: reqwest::Client,
}

impl Transport {
    /// Trusts the system's CAs, or only the given one (PEM).
    pub(super) fn new(trusted: Option<&[u8]>) -> anyhow::Result<Self> {
        let mut builder = reqwest::Client::builder()
            .timeout(REQUEST_TIME_MAX)
            .connect_timeout(CONNECT_TIME_MAX)
            .redirect(reqwest::redirect::Policy::none());
        if let Some(pem) = trusted {
            builder = builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(pem)?);
        }
        Ok(Self { client: builder.build().context("an HTTP client for the certificate authority")? })
    }
}

impl HttpClient for Transport {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.client.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let Ok(body) = body.collect().await;
            let url = parts.uri.to_string();
            let sent = client.request(parts.method, url).headers(parts.headers).body(body.to_bytes()).send().await;
            let (parts, body) = http::Response::from(sent.map_err(|error| Error::Other(Box::new(error)))?).into_parts();
            if matches!(parts.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
                // `PAUSE` exists only within an order; other requests have no caller that would read it.
                let _ = PAUSE.try_with(|pause| pause.set(asked_for(&parts.headers)));
            }
            if !parts.status.is_server_error() {
                // Only within an order.
                let _ = ANSWERED.try_with(|answered| answered.set(true));
            }
            let bytes = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(of_body)?.to_bytes();
            let is_refusal = parts.status.is_client_error() || parts.status.is_server_error();
            let body = if is_refusal { as_problem(parts.status, &bytes) } else { bytes };
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

/// A refusal as a problem document (RFC 7807). For a proxy's page or an empty body it is made from the status.
fn as_problem(status: StatusCode, body: &[u8]) -> Bytes {
    let mut problem: serde_json::Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
    if problem.is_empty() {
        problem.insert("detail".to_owned(), format!("it answered {status} without a reason").into());
    }
    problem.entry("status").or_insert_with(|| status.as_u16().into());
    Value::Object(problem).to_string().into()
}

fn of_body(error: Box<dyn std::error::Error + Send + Sync>) -> Error {
    if error.is::<LengthLimitError>() { Error::Str("an answer within the size limit") } else { Error::Other(error) }
}

/// Parses seconds or a date; a date is compared with the authority's own clock, not with ours.
fn asked_for(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let after = text(RETRY_AFTER)?;
    let pause = if let Ok(seconds) = after.parse::<u64>() {
        Duration::from_secs(seconds)
    } else {
        let parser = jiff::fmt::rfc2822::DateTimeParser::new();
        let date = parser.parse_timestamp(after).ok()?;
        let now = parser.parse_timestamp(text(DATE)?).ok()?;
        Duration::try_from(date.duration_since(now)).unwrap_or_default()
    };
    Some(pause.min(PAUSE_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(retry_after: &str) -> HeaderMap {
        let date = "Fri, 20 Nov 2026 10:00:00 GMT";
        [(RETRY_AFTER, retry_after), (DATE, date)]
            .map(|(name, value)| (name, value.parse().unwrap()))
            .into_iter()
            .collect()
    }

    #[test]
    fn every_refusal_is_a_problem_with_a_status() {
        let read = |body: &str| -> Value {
            serde_json::from_slice(&as_problem(StatusCode::NOT_FOUND, body.as_bytes())).unwrap()
        };
        for body in ["", "<html>", "[]", "null", "{}"] {
            assert_eq!(
                read(body),
                serde_json::json!({ "status": 404, "detail": "it answered 404 Not Found without a reason" })
            );
        }
        assert_eq!(read(r#"{"type":"a"}"#), serde_json::json!({ "type": "a", "status": 404 }));
        assert_eq!(read(r#"{"status":400}"#), serde_json::json!({ "status": 400 }));
    }

    #[test]
    fn both_forms_of_retry_after_are_understood_and_bounded() {
        assert_eq!(asked_for(&answer("120")), Some(Duration::from_mins(2)));
        assert_eq!(asked_for(&answer("Fri, 20 Nov 2026 10:02:00 GMT")), Some(Duration::from_mins(2)));
        assert_eq!(asked_for(&answer("Fri, 01 Jan 1999 00:00:00 GMT")), Some(Duration::ZERO));
        assert_eq!(asked_for(&answer("99999999999")), Some(PAUSE_MAX));
        assert_eq!(asked_for(&answer("soon")), None);
        assert_eq!(asked_for(&HeaderMap::new()), None);
    }
}
