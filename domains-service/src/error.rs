//! The catalogue of all refusals of the control plane.
//!
//! Each code has one status and a heading in the documentation of errors.

use axum::http::header;
use axum::response::Response;
use chassis::guard::GuardCode;
use chassis::refusal::Refusal;
use chassis::sql;
use contract::rejection::CodeEntry;

use crate::actor::NotPermitted;
use crate::store::StoreError;

contract::catalogue! {
    /// One refusal of the control plane.
    pub(crate) enum Code {
        /// The body is not the JSON expected.
        InvalidBody = 400 "invalid_body", Client;
        /// A query parameter has no sensible value.
        InvalidQuery = 400 "invalid_query", Client;
        /// A project's name is not a label.
        InvalidProject = 400 "invalid_project", Client;
        /// Not a fully qualified hostname.
        InvalidDomain = 400 "invalid_domain", Client;
        /// A name reserved for other uses.
        ReservedDomain = 400 "reserved_domain", Client;
        /// A suffix under which different people register names.
        PublicSuffix = 400 "public_suffix", Client;
        /// A name in the platform's own zone.
        PlatformDomain = 400 "platform_domain", Client;
        /// A webhook's address cannot be used.
        InvalidWebhookUrl = 400 "invalid_webhook_url", Client;
        /// A gateway reports an applied revision that does not exist.
        UnknownRevision = 400 "unknown_revision", Platform;
        /// A redirect status other than 301, 302, 307, 308.
        InvalidRedirectStatus = 400 "invalid_redirect_status", Client;
        /// No API key came with the request.
        MissingApiKey = 401 "missing_api_key", Client;
        /// The API key is malformed, unknown or revoked, or not the one that its gateway signed for.
        InvalidApiKey = 401 "invalid_api_key", Client;
        /// The API key has expired.
        ExpiredApiKey = 401 "expired_api_key", Client;
        /// The plan has no custom domains.
        PlanRequired = 403 "plan_required", Customer;
        /// The plan's number of domains is used up.
        DomainLimitReached = 403 "domain_limit_reached", Customer;
        /// The project has as many keys as it may.
        KeyLimitReached = 403 "key_limit_reached", Customer;
        /// The project has as many webhooks as it may.
        WebhookLimitReached = 403 "webhook_limit_reached", Customer;
        /// The key may not do this.
        InsufficientScope = 403 "insufficient_scope", Client;
        /// A key would get more than its maker has.
        ScopeNotGrantable = 403 "scope_not_grantable", Client;
        /// There is nothing at this path.
        NotFound = 404 "not_found", Client;
        /// No such project, or not the caller's.
        ProjectNotFound = 404 "project_not_found", Client;
        /// The project has no such domain.
        DomainNotFound = 404 "domain_not_found", Client;
        /// The project has no such key.
        KeyNotFound = 404 "key_not_found", Client;
        /// The project has no such webhook.
        WebhookNotFound = 404 "webhook_not_found", Client;
        /// The webhook has no such delivery.
        DeliveryNotFound = 404 "delivery_not_found", Client;
        /// The method is not allowed here.
        MethodNotAllowed = 405 "method_not_allowed", Client;
        /// The project has the domain already, with other settings than those that are asked for.
        DomainExists = 409 "domain_exists", Client;
        /// A gateway followed another history than this database's.
        History = 409 "history", Platform;
        /// The name has a good credential, or there are as many of its kind as may be.
        CredentialExists = 409 "credential_exists", Client;
        /// The command line's credential derives from the platform's secret, and ends when that is replaced.
        CommandLineCredential = 409 "command_line_credential", Client;
        /// There is a project of this name.
        ProjectExists = 409 "project_exists", Client;
        /// The platform uses this name.
        ProjectReserved = 409 "project_reserved", Client;
        /// The project has not been deployed successfully yet.
        ProjectNotDeployed = 409 "project_not_deployed", Customer;
        /// The key is revoked or expired.
        KeyNotUsable = 409 "key_not_usable", Client;
        /// The webhook is disabled.
        WebhookDisabled = 409 "webhook_disabled", Customer;
        /// Other domains redirect to this one.
        PrimaryInUse = 409 "primary_in_use", Client;
        /// The redirect would loop or chain.
        RedirectLoop = 409 "redirect_loop", Client;
        /// What should be redirected to, or be the primary domain, is not served.
        RedirectTargetInactive = 409 "redirect_target_inactive", Client;
        /// The domain is being removed.
        RemovalInProgress = 409 "removal_in_progress", Client;
        /// It was changed since.
        StaleRevision = 412 "stale_revision", Client;
        /// The body did not come in time.
        RequestTimeout = 408 "request_timeout", Client;
        /// The body is larger than 16 KiB.
        BodyTooLarge = 413 "body_too_large", Client;
        /// Checks are asked for too often.
        VerifyThrottled = 429 "verify_throttled", Client;
        /// Changes come too often, of one session or of one project.
        TooManyChanges = 429 "too_many_changes", Client;
        /// The maximum of processes of a gateway is registered, or has reported the same.
        TooManyProcesses = 429 "too_many_processes", Platform;
        /// A fault of this service.
        InternalError = 500 "internal_error", Platform;
        /// A row of the database cannot be read.
        RecordUnreadable = 500 "record_unreadable", Platform;
        /// No resolver answers.
        ResolverUnavailable = 503 "resolver_unavailable", Platform;
        /// The database does not answer.
        StorageUnavailable = 503 "storage_unavailable", Platform;
        /// The database has no space left.
        StorageFull = 503 "storage_full", Platform;
    }
}

/// Every code of this service. Each has a heading in `docs/reference/errors.md`.
pub fn catalogue() -> impl Iterator<Item = CodeEntry> {
    GuardCode::entries().chain(Code::entries())
}

impl Code {
    /// The refusal with this code and a message that says what to do.
    pub(crate) fn refuse(self, message: impl Into<String>) -> Refusal {
        Refusal::new(self.status(), self.code(), message)
    }

    /// The same as the answer of an operation.
    pub(crate) fn fail<T>(self, message: impl Into<String>) -> ApiResult<T> {
        Err(self.refuse(message).into())
    }
}

/// A refusal for a database that does not answer, or has no space left: logged here, once. A row that cannot be read
/// was logged where it was read.
pub(crate) fn storage(error: &StoreError) -> Refusal {
    let cause = match error {
        StoreError::Database(cause) => cause,
        StoreError::Unreadable { .. } => {
            let message = "This record is damaged and cannot be changed, but it can be removed. The platform's operators are notified.";
            return Code::RecordUnreadable.refuse(message);
        }
        StoreError::ActorRevoked => {
            let message = "The credential of this request was revoked during the request. Nothing was changed.";
            return Code::InvalidApiKey.refuse(message);
        }
    };
    tracing::error!(%error, what_to_do = sql::remedy(cause), "database operation failed; refusing the request");
    let refusal = if sql::is_full(cause) {
        Code::StorageFull.refuse("The database has no space left; nothing was changed. Reading still works.")
    } else {
        Code::StorageUnavailable.refuse("The database is unavailable. Retry shortly.")
    };
    refusal.with_header(header::RETRY_AFTER, "1")
}

/// The answer of an operation, or a part of it, unless it refuses.
pub(crate) type ApiResult<T = Response> = Result<T, ApiError>;

/// A refusal that ends an operation early.
#[derive(Debug)]
pub(crate) struct ApiError(pub(crate) Box<Refusal>);

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self(Box::new(refusal))
    }
}

impl From<NotPermitted> for ApiError {
    fn from(error: NotPermitted) -> Self {
        let code = match error {
            NotPermitted::NoSuchProject => Code::ProjectNotFound,
            NotPermitted::Needs(_) => Code::InsufficientScope,
        };
        code.refuse(error.to_string()).into()
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        storage(&error).into()
    }
}

impl From<sqlx::Error> for ApiError {
    fn from(error: sqlx::Error) -> Self {
        StoreError::from(error).into()
    }
}

impl From<anyhow::Error> for ApiError {
    fn from(error: anyhow::Error) -> Self {
        tracing::error!(error = format!("{error:#}"), "a request failed: answered 500. This is a defect: report it");
        Code::InternalError.refuse("The platform failed to process the request.").into()
    }
}

impl axum::response::IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_are_distinct_and_documented() {
        let documentation = include_str!("../../docs/reference/errors.md");
        let mut seen = HashSet::new();
        for CodeEntry { code, status, .. } in catalogue() {
            assert!(seen.insert(code), "{code}");
            assert!((400..600).contains(&status));
            assert!(documentation.contains(&format!("\n### `{code}`\n")), "{code} has no heading");
        }
    }
}
