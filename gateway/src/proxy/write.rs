//! Writing what the gateway says itself.

use std::borrow::Cow;

use bytes::Bytes;
use http::header;
use pingora::http::ResponseHeader;
use pingora::proxy::Session;

use super::Gateway;
use crate::answer::{Answer, Refusal};
use crate::decorate::decorate;
use crate::door::Connection;
use crate::facts::{Facts, Shown, Surface};
use crate::quota::standing::Outcome;
use crate::rejection::Blame;

/// Redirects that caches may keep are kept for five minutes, so that a changed primary domain is not stuck.
const REDIRECT_CACHE: &str = "max-age=300";

/// How long a browser may remember the answer to a preflight, in seconds.
const PREFLIGHT_MAX_AGE: &str = "600";

const PREFLIGHT_HEADERS: &str = "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, X-Request-Id";

impl Gateway {
    /// Head and body of an answer, decorated.
    pub(crate) fn compose(
        &self,
        facts: &mut Facts,
        connection: &Connection,
        answer: Answer,
    ) -> pingora::Result<(ResponseHeader, Cow<'static, str>)> {
        // What never reached an upstream through our own fault costs nothing; whoever else is to blame was served.
        if matches!(&answer, Answer::Refuse(refusal) if refusal.rejection.blame() == Blame::Platform)
            && facts.upstream_answered.is_none()
        {
            self.refund(facts);
        }
        self.show_limits(facts, connection);
        let (mut response, body) = self.response(facts, answer)?;
        decorate(&mut response, facts, connection.is_tls())?;
        if response.status != http::StatusCode::NO_CONTENT {
            response.insert_header(header::CONTENT_LENGTH, body.len())?;
        }
        Ok((response, body))
    }

    /// Takes the charge back. The response still shows what was left after it: figures never rise within a window.
    fn refund(&self, facts: &mut Facts) {
        if let (Some(standing), Some(payer)) = (facts.charged.take(), &facts.payer) {
            self.pipeline.quota.refund(&payer.id, &standing);
        }
    }

    /// Writes an answer and ends the response.
    pub(super) async fn write(
        &self,
        session: &mut Session,
        facts: &mut Facts,
        connection: &Connection,
        answer: Answer,
    ) -> pingora::Result<()> {
        let (response, body) = self.compose(facts, connection, answer)?;
        // A body that nobody will read: the connection cannot be used again.
        if !session.as_downstream_mut().is_body_done() {
            session.set_keepalive(None);
        }
        let is_head = session.req_header().method == http::Method::HEAD;
        let ends_with_head = is_head || body.is_empty();
        session.write_response_header(Box::new(response), ends_with_head).await?;
        if !ends_with_head {
            session.write_response_body(Some(bytes(body)), true).await?;
        }
        Ok(())
    }

    /// Every API response shows limits: those of the caller, or those of an address that has not said who it is.
    fn show_limits(&self, facts: &mut Facts, connection: &Connection) {
        if facts.surface == Surface::Api && facts.shown.is_none() {
            let standing = match self.pipeline.anonymous.check(connection.client().ip(), self.clock.now()) {
                Ok(standing) | Err(standing) => standing,
            };
            facts.shown = Some(Shown { standing, outcome: Outcome::Admitted });
        }
    }

    #[expect(clippy::unused_self, reason = "reads as a step of `write`")]
    fn response(&self, facts: &mut Facts, answer: Answer) -> pingora::Result<(ResponseHeader, Cow<'static, str>)> {
        match answer {
            Answer::Refuse(refusal) => {
                facts.refused = Some(refusal.rejection);
                refuse(&refusal)
            }
            Answer::Redirect { status, location } => {
                let mut response = ResponseHeader::build(status.code(), Some(6))?;
                response.insert_header(header::LOCATION, location)?;
                if matches!(status.code(), 301 | 308) {
                    response.insert_header(header::CACHE_CONTROL, REDIRECT_CACHE)?;
                }
                Ok((response, Cow::Borrowed("")))
            }
            Answer::Challenge(text) => {
                let mut response = ResponseHeader::build(200, Some(4))?;
                response.insert_header(header::CONTENT_TYPE, "application/octet-stream")?;
                response.insert_header(header::CACHE_CONTROL, "no-store")?;
                Ok((response, text.into()))
            }
            Answer::Preflight { methods } => {
                let mut response = ResponseHeader::build(204, Some(16))?;
                response.insert_header(header::ACCESS_CONTROL_ALLOW_METHODS, methods)?;
                response.insert_header(header::ACCESS_CONTROL_ALLOW_HEADERS, PREFLIGHT_HEADERS)?;
                response.insert_header(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_MAX_AGE)?;
                response.insert_header(
                    header::VARY,
                    "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
                )?;
                Ok((response, Cow::Borrowed("")))
            }
            Answer::Options { methods } => {
                let mut response = ResponseHeader::build(204, Some(16))?;
                response.insert_header(header::ALLOW, methods)?;
                Ok((response, Cow::Borrowed("")))
            }
        }
    }
}

/// A text as a body; nothing is copied.
pub(crate) fn bytes(text: Cow<'static, str>) -> Bytes {
    match text {
        Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
        Cow::Owned(text) => Bytes::from(text),
    }
}

fn refuse(refusal: &Refusal) -> pingora::Result<(ResponseHeader, Cow<'static, str>)> {
    let mut response = ResponseHeader::build(refusal.rejection.status(), Some(20))?;
    response.insert_header(header::CONTENT_TYPE, "application/json")?;
    response.insert_header(header::CACHE_CONTROL, "no-store")?;
    if let Some(seconds) = refusal.retry_after_seconds {
        response.insert_header(header::RETRY_AFTER, seconds)?;
    }
    for (name, value) in &refusal.headers {
        response.insert_header(name.clone(), value.clone())?;
    }
    Ok((response, refusal.body()))
}
