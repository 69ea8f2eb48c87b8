//! Refusals as problem details (RFC 9457), for clients that ask for them.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

use crate::error::Refused;

const MEDIA_TYPE: &str = "application/problem+json";

/// The members of RFC 9457, and those of the Error body beside them: a client that knows either reads it.
#[derive(Serialize)]
struct Problem<'r> {
    r#type: String,
    title: &'r str,
    status: u16,
    detail: &'r str,
    code: &'r str,
    message: &'r str,
}

/// Around the handlers: rewrites a refusal when `Accept` names the media type of problems.
pub(super) async fn on_request(request: Request, next: Next) -> Response {
    let asked = asks_for_problems(request.headers());
    let response = next.run(request).await;
    let Some(Refused(body)) = response.extensions().get::<Refused>().filter(|_| asked) else { return response };
    let problem = Problem {
        r#type: format!("/reference#{}", body.code),
        title: response.status().canonical_reason().unwrap_or("Error"),
        status: body.status,
        detail: &body.message,
        code: &body.code,
        message: &body.message,
    };
    let text = serde_json::to_string(&problem).unwrap_or_else(|_| body.to_json());
    let (mut head, _) = response.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    head.headers.append(header::VARY, HeaderValue::from_static("accept"));
    (head, text).into_response()
}

/// Wildcards do not count: the Error body is what everybody else expects.
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
