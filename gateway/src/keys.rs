//! Authenticates the caller: checks the key in `Authorization` offline, then in the replica.

use std::sync::Arc;

use contract::key::{ApiKey, Environment, PresentedKey};
use contract::project::ProjectId;
use contract::time::UnixSeconds;
use http::header;

use crate::request::EdgeRequest;
use replica::Replica;

/// Why authentication failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthError {
    /// No `Authorization` header.
    Missing,
    /// Not a valid key: another scheme, two headers, a wrong form or checksum. Needs no lookup.
    Malformed,
    /// Unknown or revoked, or of another project or deployment.
    Unknown,
    /// Expired.
    Expired,
}

/// The result of an authentication, for the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Authentication {
    /// The caller is authenticated.
    Recognised,
    /// The key is missing or wrong.
    Failed(AuthError),
    /// The address failed too often: its key is not checked.
    Throttled,
}

impl Authentication {
    /// All results, in the order of their counters.
    pub(crate) const ALL: &'static [Self] = &[
        Self::Recognised,
        Self::Failed(AuthError::Missing),
        Self::Failed(AuthError::Malformed),
        Self::Failed(AuthError::Unknown),
        Self::Failed(AuthError::Expired),
        Self::Throttled,
    ];

    /// The word in `edge_auth_total{result}`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Recognised => "ok",
            Self::Failed(AuthError::Missing) => "missing",
            Self::Failed(AuthError::Malformed) => "malformed",
            Self::Failed(AuthError::Unknown) => "unknown",
            Self::Failed(AuthError::Expired) => "expired",
            Self::Throttled => "throttled",
        }
    }
}

/// Looks keys up for one deployment.
pub(crate) struct Keys {
    replica: Arc<Replica>,
    environment: Environment,
}

impl Keys {
    /// The deployment whose keys are valid here.
    pub(crate) fn environment(&self) -> Environment {
        self.environment
    }

    /// Keys of this deployment, from this replica.
    pub(crate) fn new(replica: Arc<Replica>, environment: Environment) -> Self {
        Self { replica, environment }
    }

    /// The key of a request, if it opens sites of `project` (of any project if `None`).
    ///
    /// # Errors
    /// [`AuthError`]: the client sees the same answer for all but `Missing` and `Expired`.
    pub(crate) fn authenticate(
        &self,
        request: &EdgeRequest<'_>,
        project: Option<&ProjectId>,
        now: UnixSeconds,
    ) -> Result<Arc<ApiKey>, AuthError> {
        let presented = presented(request)?;
        if presented.environment() != self.environment {
            return Err(AuthError::Unknown);
        }
        let key = self.replica.key(&presented.digest()).ok_or(AuthError::Unknown)?;
        if key.environment != self.environment || project.is_some_and(|project| *project != key.project) {
            return Err(AuthError::Unknown);
        }
        if key.expires_at.is_some_and(|end| end <= now) {
            return Err(AuthError::Expired);
        }
        Ok(key)
    }
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
pub(crate) fn carries_a_key(request: &EdgeRequest<'_>) -> bool {
    request
        .headers
        .get_all(header::AUTHORIZATION)
        .iter()
        .any(|value| value.as_bytes().windows(3).any(|window| window == b"th_"))
}
