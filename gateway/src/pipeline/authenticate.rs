//! Who is calling?
//!
//! Failures are counted per client address, and an address with too many is told to wait instead of being told what is
//! wrong with its key. A valid key is never refused for what its neighbours behind the same address do: looking it up
//! costs one read of memory.

use super::Pipeline;
use crate::answer::{Answer, Refusal};
use crate::facts::{Facts, Shown};
use crate::keys::{AuthError, Authentication};
use crate::quota::standing::Outcome;
use crate::rejection::Rejection;
use crate::request::EdgeRequest;
use contract::window::Window;

impl Pipeline {
    pub(super) fn authenticate(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> Result<(), Answer> {
        let project = facts.project.as_ref().map(|project| project.id.clone());
        match self.keys.authenticate(request, project.as_ref(), self.clock.now_seconds()) {
            Ok(key) => {
                // A key whose project has not arrived yet is not known yet. One of a removed project stays unknown
                // also where another project has its name by now.
                let payer = self.replica.project(&key.project);
                let payer = payer.filter(|payer| payer.identity() == key.project_identity());
                facts.key = Some(key);
                facts.payer = payer;
                if facts.payer.is_none() {
                    return Err(self.refuse(AuthError::Unknown, request, facts));
                }
                facts.authentication = Some(Authentication::Recognised);
                Ok(())
            }
            Err(error) => Err(self.refuse(error, request, facts)),
        }
    }

    fn refuse(&self, error: AuthError, request: &EdgeRequest<'_>, facts: &mut Facts) -> Answer {
        let now = self.clock.now();
        if let Err(standing) = self.anonymous.check(request.client, now) {
            facts.authentication = Some(Authentication::Throttled);
            let outcome = Outcome::Refused(Window::Minute);
            facts.shown = Some(Shown { standing, outcome });
            let wait = standing.retry_after_seconds(outcome).unwrap_or(1);
            return Refusal::new(Rejection::TooManyAuthFailures).retry_after(i64::from(wait)).into();
        }
        facts.authentication = Some(Authentication::Failed(error));
        let standing = self.anonymous.fail(request.client, now);
        facts.shown = Some(Shown { standing, outcome: Outcome::Admitted });
        let (rejection, challenge) = match error {
            // RFC 6750 section 3: no error attribute when no credentials were sent.
            AuthError::Missing => (Rejection::MissingApiKey, r#"Bearer realm="tollhouse""#),
            AuthError::Malformed | AuthError::Unknown => {
                (Rejection::InvalidApiKey, r#"Bearer realm="tollhouse", error="invalid_token""#)
            }
            AuthError::Expired => (
                Rejection::ExpiredApiKey,
                r#"Bearer realm="tollhouse", error="invalid_token", error_description="The API key has expired""#,
            ),
        };
        Refusal::new(rejection).with("WWW-Authenticate", challenge).into()
    }
}
