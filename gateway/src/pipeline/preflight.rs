//! A browser's preflight (OPTIONS with `Origin` and `Access-Control-Request-Method`) on an API: answered at the edge,
//! without a key, free of charge. Browsers cannot send a key with it, and a 401 here would lock out every web page.

use http::{Method, header};

use super::Pipeline;
use crate::answer::Answer;
use crate::facts::{Facts, Surface};
use crate::request::EdgeRequest;

impl Pipeline {
    #[expect(clippy::unused_self, reason = "a stage like the others, so that the page reads alike")]
    pub(super) fn answer_preflight(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> Result<(), Answer> {
        let is_preflight = facts.surface == Surface::Api
            && *request.method == Method::OPTIONS
            && request.headers.contains_key(header::ORIGIN)
            && request.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        if !is_preflight {
            return Ok(());
        }
        // An unauthenticated caller learns nothing about routes: the answer is the same for every path.
        Err(Answer::Preflight { methods: "GET, HEAD, POST, PUT, PATCH, DELETE".to_owned() })
    }
}
