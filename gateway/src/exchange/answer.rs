//! Ends an exchange with a response of the gateway itself: an answer of the pipeline, or the refusal of a request that
//! failed.

use std::borrow::Cow;

use http::StatusCode;
use pingora::Error;

use super::Exchange;
use super::downstream::Downstream;
use crate::answer::{Answer, Refusal, accepts_html};
use crate::decorate::{PresentFields, ResponseSink, add_fields};
use crate::facts::{QuotaFigures, Surface};
use crate::forward;
use crate::grpc::{self, WebForm};
use contract::rejection::Rejection;
use quota::allowance::QuotaOutcome;

impl Exchange<'_> {
    /// Sends an answer of the gateway.
    pub(super) async fn answer<D: Downstream>(&mut self, client: &mut D, answer: Answer) -> pingora::Result<()> {
        let mut head = client.head();
        let (status, body) = self.compose(answer, &mut head)?;
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

    /// Writes the head of an answer to `out`, without the connection's fields; returns the status and the body. A
    /// visitor of a site gets a page if the browser asks for one.
    fn compose(
        &mut self,
        answer: Answer,
        out: &mut impl ResponseSink,
    ) -> pingora::Result<(StatusCode, Cow<'static, str>)> {
        // A request that failed by our own fault before an upstream answered costs nothing.
        if matches!(&answer, Answer::Refuse(refusal) if refusal.rejection.is_free())
            && self.facts.upstream.answered.is_none()
        {
            self.refund();
        }
        self.show_limits();
        if let Answer::Refuse(refusal) = &answer {
            self.facts.refused = Some(refusal.rejection);
        }
        // A gRPC client reads gRPC statuses and no body.
        let form = self.facts.connection.grpc_web;
        if let (Answer::Refuse(refusal), true) = (&answer, self.facts.connection.is_grpc || form.is_some()) {
            let content_type = form.map_or(grpc::CONTENT_TYPE, WebForm::content_type);
            let (status, code) = refusal.write_grpc(content_type, out)?;
            self.facts.connection.grpc_status = Some(code);
            add_fields(&self.facts, self.connection.is_tls(), PresentFields::default(), out)?;
            if form.is_some() {
                out.figure("Content-Length", 0)?;
            }
            return Ok((status, Cow::Borrowed("")));
        }
        let (status, body) = match &answer {
            Answer::Refuse(refusal)
                if matches!(self.facts.surface, Surface::Site | Surface::Listener)
                    && accepts_html(&self.head.headers) =>
            {
                let own =
                    self.facts.upstream.configured.as_ref().and_then(|upstream| upstream.settings.error_page.as_ref());
                refusal.write_page(own, &self.facts.request_id, out)?
            }
            _ => answer.write(out)?,
        };
        add_fields(&self.facts, self.connection.is_tls(), PresentFields::default(), out)?;
        if status != StatusCode::NO_CONTENT {
            out.figure("Content-Length", body.len())?;
        }
        Ok((status, body))
    }

    /// Refunds the charge. The response still shows the figures before the refund: they never rise within a window.
    fn refund(&mut self) {
        if let (Some(allowances), Some(payer)) = (self.facts.quota.charged.take(), &self.facts.caller.payer) {
            self.gateway.pipeline.quota.refund(&payer.uid, &allowances);
        }
    }

    /// Every API response shows limits: the caller's, or those of its address if it is not authenticated.
    fn show_limits(&mut self) {
        if self.facts.surface == Surface::Api && self.facts.quota.figures.is_none() {
            let client = self.facts.client(self.connection);
            let (Ok(allowances) | Err(allowances)) =
                self.gateway.pipeline.failed_authentications.check(client, self.gateway.clock.now());
            self.facts.quota.figures = Some(QuotaFigures { allowances, outcome: QuotaOutcome::Admitted });
        }
    }
}
