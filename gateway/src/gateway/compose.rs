//! Writes the gateway's own answers.

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;

use super::Gateway;
use crate::answer::Answer;
use crate::decorate::{PresentFields, ResponseSink, add_fields};
use crate::facts::{Facts, QuotaFigures, Surface};
use listener::Connection;
use quota::standing::QuotaOutcome;

impl Gateway {
    /// Writes the head of an answer to `out`, without the connection's fields; returns the status and the body. With
    /// `page`, a site for people gets a page.
    pub(crate) fn compose(
        &self,
        facts: &mut Facts,
        connection: &Connection,
        (answer, page): (Answer, bool),
        out: &mut impl ResponseSink,
    ) -> pingora::Result<(StatusCode, Cow<'static, str>)> {
        // A request that failed by our own fault before an upstream answered costs nothing.
        if matches!(&answer, Answer::Refuse(refusal) if refusal.rejection.is_free())
            && facts.upstream.answered.is_none()
        {
            self.refund(facts);
        }
        self.show_limits(facts, connection);
        if let Answer::Refuse(refusal) = &answer {
            facts.refused = Some(refusal.rejection);
        }
        // A gRPC client reads gRPC statuses and no body.
        if let (Answer::Refuse(refusal), true) = (&answer, facts.connection.is_grpc) {
            let (status, code) = refusal.write_grpc(out)?;
            facts.connection.grpc_status = Some(code);
            add_fields(facts, connection.is_tls(), PresentFields::default(), out)?;
            return Ok((status, Cow::Borrowed("")));
        }
        let (status, body) = match &answer {
            Answer::Refuse(refusal) if page && matches!(facts.surface, Surface::Site | Surface::Listener) => {
                let own = facts.upstream.backend.as_ref().and_then(|upstream| upstream.settings.error_page.as_ref());
                refusal.show(own, &facts.request_id, out)?
            }
            _ => answer.say(out)?,
        };
        add_fields(facts, connection.is_tls(), PresentFields::default(), out)?;
        if status != StatusCode::NO_CONTENT {
            out.figure("Content-Length", body.len())?;
        }
        Ok((status, body))
    }

    /// Refunds the charge. The response still shows the figures before the refund: they never rise within a window.
    fn refund(&self, facts: &mut Facts) {
        if let (Some(standing), Some(payer)) = (facts.quota.charged.take(), &facts.caller.payer) {
            self.pipeline.quota.refund(&payer.uid, &standing);
        }
    }

    /// Every API response shows limits: the caller's, or those of its address if it is not authenticated.
    fn show_limits(&self, facts: &mut Facts, connection: &Connection) {
        if facts.surface == Surface::Api && facts.quota.figures.is_none() {
            let standing = match self.pipeline.failed_authentications.check(facts.client(connection), self.clock.now())
            {
                Ok(standing) | Err(standing) => standing,
            };
            facts.quota.figures = Some(QuotaFigures { standing, outcome: QuotaOutcome::Admitted });
        }
    }
}

/// A text as a body, without a copy.
pub(crate) fn bytes(text: Cow<'static, str>) -> Bytes {
    match text {
        Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
        Cow::Owned(text) => Bytes::from(text),
    }
}
