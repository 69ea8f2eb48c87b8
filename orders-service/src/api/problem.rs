//! Refusals as problem details (RFC 9457), for clients that ask for them.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::error::Refused;

const MEDIA_TYPE: &str = "application/problem+json";

contract::message! {
    /// With the members of the Error body beside those of RFC 9457, so that a client that knows either reads it.
    pub(super) sparse Problem = "The same refusal as RFC 9457 writes it, for clients that accept application/problem+json." {
        kind as "type": String, { "format": "uri-reference" };
        title: String;
        status: u16, { "minimum": 400, "maximum": 599 };
        detail: String;
        code: String;
        message: String;
    }
}

/// Middleware: rewrites a refusal if `Accept` names `application/problem+json`.
pub(super) async fn on_request(request: Request, next: Next) -> Response {
    let asked = asks_for_problems(request.headers());
    let response = next.run(request).await;
    let Some(Refused(body)) = response.extensions().get::<Refused>().filter(|_| asked) else { return response };
    let problem = Problem {
        kind: format!("/reference#{}", body.code),
        title: response.status().canonical_reason().unwrap_or("Error").to_owned(),
        status: body.status,
        detail: body.message.clone(),
        code: body.code.clone(),
        message: body.message.clone(),
    };
    let text = serde_json::to_string(&problem).unwrap_or_else(|_| body.to_json());
    let (mut head, _) = response.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    head.headers.append(header::VARY, HeaderValue::from_static("accept"));
    (head, text).into_response()
}

/// Wildcards do not count: without the exact media type, a client gets the Error body of the specification.
fn asks_for_problems(headers: &HeaderMap) -> bool {
    headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(',')).any(
        |range| {
            let mut parts = range.split(';').map(str::trim);
            let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(MEDIA_TYPE));
            let refused = parts.any(|part| part.strip_prefix("q=").is_some_and(|weight| weight.parse() == Ok(0.0_f32)));
            named && !refused
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_client_that_names_the_media_type_gets_problems() {
        let asked = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            asks_for_problems(&headers)
        };
        assert!(asked("application/problem+json"));
        assert!(asked("application/json, Application/Problem+JSON;q=0.5"));
        assert!(!asked("*/*"));
        assert!(!asked("application/*"));
        assert!(!asked("application/problem+json;q=0"));
        assert!(!asked("application/problem+json; q=0.000"));
        assert!(!asks_for_problems(&HeaderMap::new()));
    }
}
