//! Parts of the gateway for benchmarks and fuzzing outside this crate. A running gateway uses none of it.

use std::sync::Arc;
use std::time::Duration;

use contract::hostname::Hostname;
use contract::key::ApiKey;
use contract::keyring::Generation;
use contract::project::Project;
use contract::rejection::Rejection;
use contract::time::UnixMillis;
use contract::token::KeySet;
use listener::Connection;
use pingora_http::RequestHeader;
use quota::allowance::{Allowances, QuotaOutcome};

use crate::answer::Refusal;
pub use crate::exchange::fuzzing as exchange;
use crate::facts::{Facts, QuotaFigures, Surface};
use crate::identity::IdentityTokens;
use crate::request_id::RequestId;
pub use crate::telemetry::Telemetry;
use crate::telemetry::{Entry, LoggedConnection};
pub use ::replica::CertificateOpener;
pub use replica::fuzzing as replica;

/// An API request of an authenticated and charged caller.
pub struct KnownRequest {
    facts: Facts,
    identity_tokens: IdentityTokens,
}

impl KnownRequest {
    /// A request with the project's own key.
    ///
    /// # Errors
    /// The generation has no key to sign with.
    pub fn new(
        host: Hostname,
        project: Arc<Project>,
        key: Arc<ApiKey>,
        allowances: Allowances,
        generation: Generation,
    ) -> anyhow::Result<Self> {
        let mut facts =
            Facts::new(RequestId::new(0x1234_5678_9abc_def0), UnixMillis(1_700_000_000_123), Duration::ZERO);
        facts.surface = Surface::Api;
        facts.host = Some(host);
        facts.project = Some(project.clone());
        facts.caller.payer = Some(project);
        facts.quota.figures = Some(QuotaFigures { allowances, outcome: QuotaOutcome::Admitted });
        facts.caller.key = Some(key);
        let identity_tokens = IdentityTokens::waiting();
        identity_tokens.replace(&[generation], KeySet::default())?;
        Ok(Self { facts, identity_tokens })
    }

    /// Rewrites the client's head into the upstream's.
    pub fn rewrite(&self, head: &mut RequestHeader, connection: &Connection) -> bool {
        crate::forward::rewrite(head, &self.facts, connection, &self.identity_tokens).is_ok()
    }

    /// A response head with the edge's fields; `None` if there is no head.
    pub fn client_head(&self, response: &[u8]) -> Option<Vec<u8>> {
        exchange::client_head(response, &self.facts).ok()
    }

    /// The head of a refusal.
    pub fn refusal_head(&self) -> Option<Vec<u8>> {
        let refusal = Refusal::new(Rejection::InvalidApiKey).with("WWW-Authenticate", "Bearer realm=\"tollhouse\"");
        exchange::answer_head(refusal.into(), &self.facts).ok()
    }

    /// Counts the request as answered with 200 and writes its log line.
    pub fn finish(&self, telemetry: &Telemetry) {
        let connection = LoggedConnection { protocol: "h1", tls: "TLSv1_3", client: Some("203.0.113.195") };
        let (method, path) = ("GET", "/v1/store/orders");
        telemetry.finish(&self.facts, &Entry { status: 200, method, path, bytes_sent: 1024, connection, error: None });
    }
}
