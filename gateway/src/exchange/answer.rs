//! Ends an exchange with a response of the gateway itself: an answer of the pipeline, or the refusal of a request that
//! failed.

use std::borrow::Cow;

use http::StatusCode;
use pingora::Error;

use super::downstream::Downstream;
use super::{Exchange, Gateway};
use crate::answer::{Answer, Refusal, accepts_html};
use crate::decorate::{PresentFields, ResponseSink, add_fields};
use crate::facts::{Facts, QuotaFigures, Surface};
use crate::forward;
use crate::grpc::{self, WebForm};
use contract::rejection::Rejection;
use listener::Connection;
use quota::allowance::QuotaOutcome;

impl Exchange<'_> {
    /// Sends an answer of the gateway.
    pub(super) async fn answer<D: Downstream>(&mut self, client: &mut D, answer: Answer) -> pingora::Result<()> {
        let mut head = client.head();
        let page = accepts_html(&self.head.headers);
        let (status, body) = self.gateway.compose(&mut self.facts, self.connection, (answer, page), &mut head)?;
        let body = if self.is_head() { Cow::Borrowed("") } else { body };
        self.status = status.as_u16();
        self.body_bytes = body.len() as u64;
        // After an unexpected body, or after a request for another protocol, the next bytes are not a request.
        if self.facts.connection.upgrade || self.facts.refused == Some(Rejection::BodyNotAllowed) {
            client.close_after_response();
        }
        client.answer(head, body).await
    }

    /// Ends a request that was served or failed. Returns whether the client got a complete response, and the error.
    pub(super) async fn finish<D: Downstream>(
        &mut self,
        client: &mut D,
        served: pingora::Result<()>,
    ) -> (bool, Option<Box<Error>>) {
        match served {
            Ok(()) => (true, None),
            Err(error) => (self.fail(client, &error).await, Some(error)),
        }
    }

    /// Answers a request that failed, unless its response has begun. Returns whether the client got a complete
    /// response.
    async fn fail(&mut self, client: &mut impl Downstream, error: &Error) -> bool {
        let Some(rejection) = client.refusal().or_else(|| forward::rejection(error)) else { return false };
        self.facts.refused = Some(rejection);
        if self.status != 0 {
            if self.facts.connection.is_grpc && client.may_end_call() {
                return self.end_call(client, rejection).await;
            }
            client.break_off().await;
            return false;
        }
        let answered = self.answer(client, Refusal::new(rejection).into()).await;
        answered.inspect_err(|error| tracing::debug!(%error, "cannot send a refusal")).is_ok()
    }

    /// Ends a gRPC response that has begun with the status of the failure. Returns whether it was written.
    async fn end_call(&mut self, client: &mut impl Downstream, rejection: Rejection) -> bool {
        let (trailers, code) = grpc::trailers(rejection);
        self.facts.connection.grpc_status = Some(code);
        client.end(Some(trailers)).await.is_ok()
    }
}

impl Gateway {
    /// Writes the head of an answer to `out`, without the connection's fields; returns the status and the body. With
    /// `page`, a site for people gets a page.
    fn compose(
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
        let form = facts.connection.grpc_web;
        if let (Answer::Refuse(refusal), true) = (&answer, facts.connection.is_grpc || form.is_some()) {
            let content_type = form.map_or(grpc::CONTENT_TYPE, WebForm::content_type);
            let (status, code) = refusal.write_grpc(content_type, out)?;
            facts.connection.grpc_status = Some(code);
            add_fields(facts, connection.is_tls(), PresentFields::default(), out)?;
            if form.is_some() {
                out.figure("Content-Length", 0)?;
            }
            return Ok((status, Cow::Borrowed("")));
        }
        let (status, body) = match &answer {
            Answer::Refuse(refusal) if page && matches!(facts.surface, Surface::Site | Surface::Listener) => {
                let own = facts.upstream.configured.as_ref().and_then(|upstream| upstream.settings.error_page.as_ref());
                refusal.write_page(own, &facts.request_id, out)?
            }
            _ => answer.write(out)?,
        };
        add_fields(facts, connection.is_tls(), PresentFields::default(), out)?;
        if status != StatusCode::NO_CONTENT {
            out.figure("Content-Length", body.len())?;
        }
        Ok((status, body))
    }

    /// Refunds the charge. The response still shows the figures before the refund: they never rise within a window.
    fn refund(&self, facts: &mut Facts) {
        if let (Some(allowances), Some(payer)) = (facts.quota.charged.take(), &facts.caller.payer) {
            self.pipeline.quota.refund(&payer.uid, &allowances);
        }
    }

    /// Every API response shows limits: the caller's, or those of its address if it is not authenticated.
    fn show_limits(&self, facts: &mut Facts, connection: &Connection) {
        if facts.surface == Surface::Api && facts.quota.figures.is_none() {
            let allowances =
                match self.pipeline.failed_authentications.check(facts.client(connection), self.clock.now()) {
                    Ok(allowances) | Err(allowances) => allowances,
                };
            facts.quota.figures = Some(QuotaFigures { allowances, outcome: QuotaOutcome::Admitted });
        }
    }
}
