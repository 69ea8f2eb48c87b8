//! `/.well-known/acme-challenge/` on plain HTTP: answered first, for any host, never redirected or forwarded. Otherwise
//! a tenant's upstream could answer it and obtain certificates.

use contract::certificate::Challenge;

use super::Pipeline;
use crate::answer::Answer;
use crate::facts::{Facts, Surface};
use crate::request::EdgeRequest;
use contract::rejection::Rejection;

const PREFIX: &str = "/.well-known/acme-challenge/";

impl Pipeline {
    pub(super) fn answer_challenge(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> Result<(), Answer> {
        if request.is_tls {
            return Ok(());
        }
        let Some(token) = request.path.strip_prefix(PREFIX) else { return Ok(()) };
        facts.surface = Surface::Challenge;
        let challenge = if Challenge::is_token(token) { self.replica.challenge(token) } else { None };
        match challenge.filter(|challenge| challenge.hostname == request.host) {
            Some(challenge) => Err(Answer::Challenge(challenge.key_authorization.clone())),
            None => Err(Rejection::NotFound.into()),
        }
    }
}
