//! Plain HTTP: a request with a key is refused, so that its owner notices; a visitor is redirected to https and to the
//! primary domain in one hop.

use super::Pipeline;
use super::authenticate::carries_a_key;
use crate::answer::Answer;
use crate::facts::{Facts, Surface};
use crate::request::EdgeRequest;
use contract::rejection::Rejection;

impl Pipeline {
    pub(super) fn require_encryption(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> Result<(), Answer> {
        if request.is_tls {
            return Ok(());
        }
        // On an API any Authorization header counts as a key; on a public site only one that resembles a Tollhouse key.
        let authorization_counts =
            facts.surface == Surface::Api && request.headers.contains_key(http::header::AUTHORIZATION);
        if authorization_counts || carries_a_key(request) {
            // For the log: the exposed key. The request is refused in any case.
            facts.caller.key = self.key(request, facts.project.as_deref()).ok();
            return Err(Rejection::HttpsRequired.into());
        }
        Err(self.redirect_to_final_url(request, facts))
    }
}
