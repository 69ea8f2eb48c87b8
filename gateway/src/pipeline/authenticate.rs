//! Authenticates the caller.
//!
//! Failures are counted per client address. An address with too many gets 429 instead of details about its key. A valid
//! key is never refused because of other clients behind the same address: its lookup costs one memory read.

use std::sync::Arc;

use contract::key::{ApiKey, PresentedKey};
use contract::project::Project;
use http::header;

use super::Pipeline;
use crate::answer::{Answer, Refusal};
use crate::facts::{AuthError, Authentication, Facts, QuotaFigures};
use crate::request::EdgeRequest;
use contract::rejection::Rejection;
use contract::window::Window;
use quota::allowance::QuotaOutcome;

/// The message for a missing bearer scheme.
const NO_BEARER: &str = "Send the API key as: Authorization: Bearer <API_KEY>.";

/// The message for a key with a missing part or a wrong letter.
const NOT_WHOLE: &str = "Incomplete or mistyped API key. Copy it again: it begins with th_live_ or th_test_.";

impl Pipeline {
    /// Whether this needs no key. It costs nothing; the headers show the allowances of the address.
    pub(super) fn is_open(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> bool {
        let is_open = facts
            .upstream
            .configured
            .as_ref()
            .is_some_and(|upstream| upstream.routes.is_open(request.method, request.path));
        if is_open {
            let (Ok(allowances) | Err(allowances)) =
                self.failed_authentications.check(request.client, self.clock.now());
            facts.quota.figures = Some(QuotaFigures { allowances, outcome: QuotaOutcome::Admitted });
        }
        is_open
    }

    pub(super) fn authenticate(&self, request: &EdgeRequest<'_>, facts: &mut Facts) -> Result<(), Answer> {
        match self.key(request, facts.project.as_deref()) {
            Ok(key) => {
                // A key is unknown until its project has arrived. A key of a removed project stays unknown even if
                // another project has its name now.
                let payer = self.replica.project(&key.project);
                let payer = payer.filter(|payer| payer.uid == key.project_uid);
                facts.caller.key = Some(key);
                facts.caller.payer = payer;
                if facts.caller.payer.is_none() {
                    return Err(self.refuse(AuthError::Unknown, request, facts));
                }
                facts.caller.authentication = Some(Authentication::Recognised);
                Ok(())
            }
            Err(error) => Err(self.refuse(error, request, facts)),
        }
    }

    /// The key of a request, if it opens sites of `project` (of any project if `None`).
    ///
    /// # Errors
    /// [`AuthError`]: the client sees the same answer for all but `Missing` and `Expired`.
    pub(super) fn key(&self, request: &EdgeRequest<'_>, project: Option<&Project>) -> Result<Arc<ApiKey>, AuthError> {
        let presented = presented(request)?;
        if presented.environment() != self.environment {
            return Err(AuthError::Unknown);
        }
        let key = self.replica.key(&presented.digest()).ok_or(AuthError::Unknown)?;
        if key.environment != self.environment || project.is_some_and(|project| project.id != key.project) {
            return Err(AuthError::Unknown);
        }
        if key.expires_at.is_some_and(|end| end <= self.clock.now_seconds()) {
            return Err(AuthError::Expired);
        }
        Ok(key)
    }

    fn refuse(&self, error: AuthError, request: &EdgeRequest<'_>, facts: &mut Facts) -> Answer {
        let now = self.clock.now();
        if let Err(allowances) = self.failed_authentications.check(request.client, now) {
            facts.caller.authentication = Some(Authentication::Throttled);
            let outcome = QuotaOutcome::Refused(Window::Minute);
            facts.quota.figures = Some(QuotaFigures { allowances, outcome });
            let wait = allowances.retry_after_seconds(outcome).unwrap_or(1);
            return Refusal::new(Rejection::TooManyAuthFailures).retry_after(i64::from(wait)).into();
        }
        facts.caller.authentication = Some(Authentication::Failed(error));
        let allowances = self.failed_authentications.fail(request.client, now);
        facts.quota.figures = Some(QuotaFigures { allowances, outcome: QuotaOutcome::Admitted });
        let (rejection, challenge) = match error {
            // RFC 6750 section 3: no error attribute if no credentials were sent.
            AuthError::Missing => (Rejection::MissingApiKey, r#"Bearer realm="tollhouse""#),
            AuthError::Malformed | AuthError::Unknown => {
                (Rejection::InvalidApiKey, r#"Bearer realm="tollhouse", error="invalid_token""#)
            }
            AuthError::Expired => (
                Rejection::ExpiredApiKey,
                r#"Bearer realm="tollhouse", error="invalid_token", error_description="The API key has expired""#,
            ),
        };
        let refusal = Refusal::new(rejection).with("WWW-Authenticate", challenge);
        match error {
            AuthError::Malformed if has_no_scheme(request) => refusal.with_message(NO_BEARER).into(),
            AuthError::Malformed => refusal.with_message(NOT_WHOLE).into(),
            AuthError::Missing | AuthError::Unknown | AuthError::Expired => refusal.into(),
        }
    }
}

/// Whether a credential without the bearer scheme was sent.
fn has_no_scheme(request: &EdgeRequest<'_>) -> bool {
    let value = request.single(header::AUTHORIZATION).unwrap_or_default();
    !value.split_once(' ').is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
}

/// The key in `Authorization`, if that header occurs once.
fn presented(request: &EdgeRequest<'_>) -> Result<PresentedKey, AuthError> {
    if !request.headers.contains_key(header::AUTHORIZATION) {
        return Err(AuthError::Missing);
    }
    // Two headers, or bytes outside ASCII: two parsers could read two keys.
    let value = request.single(header::AUTHORIZATION).ok_or(AuthError::Malformed)?;
    PresentedKey::from_authorization(value).map_err(|_| AuthError::Malformed)
}

/// Whether a request carries something like a key in a place where it must not.
pub(super) fn carries_a_key(request: &EdgeRequest<'_>) -> bool {
    request
        .headers
        .get_all(header::AUTHORIZATION)
        .iter()
        .any(|value| value.as_bytes().windows(3).any(|window| window == b"th_"))
}
