//! What the gateway says itself, as it is written.

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;

use super::Gateway;
use crate::answer::Answer;
use crate::decorate::{ResponseSink, Spoken, ours};
use crate::facts::{Facts, Shown, Surface};
use listener::Connection;
use quota::standing::Outcome;

impl Gateway {
    /// Writes the head of an answer to `out`, all but what concerns the client's connection. Its status and body: a page
    /// where that is wanted and people visit.
    pub(crate) fn compose(
        &self,
        facts: &mut Facts,
        connection: &Connection,
        (answer, page): (Answer, bool),
        out: &mut impl ResponseSink,
    ) -> pingora::Result<(StatusCode, Cow<'static, str>)> {
        // What never reached an upstream through our own fault costs nothing; whoever else is to blame was served.
        if matches!(&answer, Answer::Refuse(refusal) if refusal.rejection.is_free())
            && facts.upstream_answered.is_none()
        {
            self.refund(facts);
        }
        self.show_limits(facts, connection);
        if let Answer::Refuse(refusal) = &answer {
            facts.refused = Some(refusal.rejection);
        }
        // A caller of gRPC reads its own statuses and no body.
        if let (Answer::Refuse(refusal), true) = (&answer, facts.is_grpc) {
            let (status, code) = refusal.write_grpc(out)?;
            facts.grpc_status = Some(code);
            ours(facts, connection.is_tls(), Spoken::default(), out)?;
            return Ok((status, Cow::Borrowed("")));
        }
        let (status, body) = match &answer {
            Answer::Refuse(refusal) if page && matches!(facts.surface, Surface::Site | Surface::Door) => {
                let own = facts.backend.as_ref().and_then(|upstream| upstream.settings.error_page.as_ref());
                refusal.show(own, &facts.request_id, out)?
            }
            _ => answer.say(out)?,
        };
        ours(facts, connection.is_tls(), Spoken::default(), out)?;
        if status != StatusCode::NO_CONTENT {
            out.figure("Content-Length", body.len())?;
        }
        Ok((status, body))
    }

    /// Takes the charge back. The response still shows what was left after it: figures never rise within a window.
    fn refund(&self, facts: &mut Facts) {
        if let (Some(standing), Some(payer)) = (facts.charged.take(), &facts.payer) {
            self.pipeline.quota.refund(&payer.uid, &standing);
        }
    }

    /// Every API response shows limits: those of the caller, or those of an address that has not said who it is.
    fn show_limits(&self, facts: &mut Facts, connection: &Connection) {
        if facts.surface == Surface::Api && facts.shown.is_none() {
            let standing = match self.pipeline.failed_authentications.check(facts.client(connection), self.clock.now())
            {
                Ok(standing) | Err(standing) => standing,
            };
            facts.shown = Some(Shown { standing, outcome: Outcome::Admitted });
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
