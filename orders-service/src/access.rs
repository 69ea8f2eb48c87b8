//! Authorisation: finds the project of a request and checks that its API key has the required scope.
//!
//! The gateway authenticates the caller and signs its identity. This module checks that identity against this
//! deployment.

use axum::http::header;
use chassis::guard::GuardCode;
use chassis::refusal::Refusal;
use contract::identity::Identity;
use contract::key::{Environment, Scope};
use contract::project::ProjectUid;

use crate::error::{ApiError, Code};

/// RFC 6750: the request has a key, but the key is not valid in this deployment.
const CHALLENGE: &str = "Bearer realm=\"api\", error=\"invalid_token\"";

/// Returns the caller's project if the key has `scope` and belongs to this deployment.
pub(crate) fn authorise(identity: &Identity, environment: Environment, scope: Scope) -> Result<ProjectUid, ApiError> {
    let Some(caller) = &identity.caller else {
        return Err(Refusal::new(401, GuardCode::IdentityRequired.code(), "This operation needs an API key.").into());
    };
    if caller.environment != environment {
        let code = Code::WrongEnvironment;
        let refusal = Refusal::new(code.status(), code.code(), code.message());
        return Err(refusal.with_header(header::WWW_AUTHENTICATE, CHALLENGE).into());
    }
    if identity.site_project.as_ref().is_some_and(|site| *site != caller.project) {
        return Err(Code::WrongProject.refuse());
    }
    if !caller.scopes.contains(scope) {
        return Err(Code::InsufficientScope.because(format!("This API key lacks the scope {scope}.")));
    }
    Ok(caller.project_uid.clone())
}

#[cfg(test)]
mod tests {
    use contract::identity::Caller;
    use contract::plan::Plan;
    use contract::time::UnixSeconds;

    use super::*;

    fn identity() -> Identity {
        Identity {
            request_id: "r".to_owned(),
            client: "192.0.2.1".parse().unwrap(),
            site_project: Some("demo".parse().unwrap()),
            caller: Some(Caller {
                key: "key_aaaaaaaaaaaaaaaa".parse().unwrap(),
                project: "demo".parse().unwrap(),
                project_uid: "demo".parse().unwrap(),
                plan: Plan::Free,
                scopes: [Scope::OrdersRead].into_iter().collect(),
                environment: Environment::Live,
            }),
            issued_at: UnixSeconds(0),
        }
    }

    fn code(identity: &Identity, environment: Environment, scope: Scope) -> String {
        match authorise(identity, environment, scope) {
            Ok(project) => project.to_string(),
            Err(ApiError::Refused(refusal)) => refusal.body().code.clone(),
            Err(ApiError::Store(_)) => unreachable!("authorise does not use the store"),
        }
    }

    #[test]
    fn a_caller_reaches_its_own_project_with_its_own_scopes_in_its_own_deployment() {
        let good = identity();
        assert_eq!(code(&good, Environment::Live, Scope::OrdersRead), "demo");
        assert_eq!(code(&good, Environment::Live, Scope::OrdersWrite), "insufficient_scope");
        assert_eq!(code(&good, Environment::Test, Scope::OrdersRead), "wrong_environment");
        let elsewhere = Identity { site_project: Some("other".parse().unwrap()), ..identity() };
        assert_eq!(code(&elsewhere, Environment::Live, Scope::OrdersRead), "wrong_project");
        let platform = Identity { site_project: None, ..identity() };
        assert_eq!(code(&platform, Environment::Live, Scope::OrdersRead), "demo");
        let without_key = Identity { caller: None, ..identity() };
        assert_eq!(code(&without_key, Environment::Live, Scope::OrdersRead), "identity_required");
    }
}
