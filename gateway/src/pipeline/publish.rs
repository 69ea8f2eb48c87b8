//! `/.well-known/tollhouse/jwks.json` on the platform's own hosts: the public keys that verify identities, without a
//! key and free of charge. Answered from memory.

use contract::site::Serves;
use contract::token::KEY_SET_PATH;
use http::Method;

use super::Pipeline;
use crate::answer::Answer;
use crate::facts::Facts;
use crate::request::EdgeRequest;

impl Pipeline {
    pub(super) fn publish_keys(&self, request: &EdgeRequest<'_>, facts: &Facts) -> Result<(), Answer> {
        let is_ours = facts.site.as_ref().is_some_and(|site| matches!(site.serves, Serves::Platform { .. }));
        let is_asked = request.path == KEY_SET_PATH && matches!(*request.method, Method::GET | Method::HEAD);
        if is_ours && is_asked { Err(Answer::KeySet(self.identity_tokens.published().to_json())) } else { Ok(()) }
    }
}
