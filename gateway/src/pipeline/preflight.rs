//! Answers a browser's preflight (OPTIONS with `Origin` and `Access-Control-Request-Method`).
//!
//! The project's setting, or its upstream's, decides who answers ([`Cors`]). If the gateway does, the preflight needs
//! no key and costs nothing: browsers cannot send a key with it, and a 401 would block every web page. If the upstream
//! of an API does, the preflight is forwarded without a caller, like the requests of a public site, without a body and
//! without a field that would change its method.

use http::{HeaderValue, Method, header};

use super::Pipeline;
use crate::answer::Answer;
use crate::facts::{Facts, Surface};
use crate::request::EdgeRequest;
use upstreams::{AllowedOrigin, Cors};

/// The longest list of fields that a browser may request and get.
const REQUESTED_BYTES_MAX: usize = 1_024;

/// The fields granted to a browser that requests none.
const FIELDS_USUAL: HeaderValue =
    HeaderValue::from_static("Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, X-Request-Id");

impl Pipeline {
    #[expect(clippy::unused_self, reason = "a stage like the others, so that the page reads alike")]
    pub(super) fn answer_preflight(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> Result<(), Answer> {
        let Some(upstream) = &facts.upstream.configured else { return Ok(()) };
        // The project's own rule takes precedence over its upstream's.
        let own = facts.project.as_ref().and_then(|project| project.browsers.cors.as_ref());
        let (cors, origin) = (own.unwrap_or(&upstream.settings.cors), request.headers.get(header::ORIGIN));
        facts.caller.allowed_origin = AllowedOrigin::of(cors, origin);
        let is_preflight = *request.method == Method::OPTIONS
            && origin.is_some()
            && request.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        if !is_preflight {
            return Ok(());
        }
        match cors {
            Cors::Off => Ok(()),
            Cors::Upstream => {
                facts.caller.is_preflight = facts.surface == Surface::Api;
                Ok(())
            }
            // Other origins learn nothing, not even routes: the answer is the same for every path.
            Cors::Open | Cors::Origins(_) => {
                let fields = (facts.caller.allowed_origin != AllowedOrigin::NotAllowed).then(|| granted(request));
                Err(Answer::Preflight { methods: "GET, HEAD, POST, PUT, PATCH, DELETE", fields })
            }
        }
    }
}

/// The fields that a page may send: the requested ones. `*` would not include `Authorization`.
fn granted(request: &EdgeRequest<'_>) -> HeaderValue {
    let is_list = |value: &&HeaderValue| {
        let text = value.as_bytes();
        let is_text = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b',' | b' ');
        (1..=REQUESTED_BYTES_MAX).contains(&text.len()) && text.iter().all(is_text)
    };
    let requested = request.headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS);
    requested.filter(is_list).cloned().unwrap_or(FIELDS_USUAL)
}
