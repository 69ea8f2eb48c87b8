//! Plain HTTP: a request with a key is refused, so that its owner notices; a visitor is led to https in the same hop
//! that leads to the primary domain.

use super::Pipeline;
use crate::answer::Answer;
use crate::facts::{Facts, Surface};
use crate::keys;
use crate::request::EdgeRequest;
use contract::rejection::Rejection;

impl Pipeline {
    pub(super) fn require_encryption(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> Result<(), Answer> {
        if request.is_tls {
            return Ok(());
        }
        // On an API any Authorization header is a key on its way; on a public site only what looks like one of ours.
        let authorization_counts =
            facts.surface == Surface::Api && request.headers.contains_key(http::header::AUTHORIZATION);
        if authorization_counts || keys::carries_a_key(request) {
            // For the log: whose key was exposed. The request is refused whatever the answer.
            let project = facts.project.as_ref().map(|project| project.id.clone());
            facts.key = self.keys.authenticate(request, project.as_ref(), self.clock.now_seconds()).ok();
            return Err(Rejection::HttpsRequired.into());
        }
        Err(self.lead_to(request, facts))
    }
}
