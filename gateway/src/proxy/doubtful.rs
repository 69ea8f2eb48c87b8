//! Responses without a body that announce one: the client is given the head, and the connection to the upstream is closed.

use pingora::http::ResponseHeader;
use pingora::proxy::Session;

use super::{Context, Gateway};
use crate::decorate::decorate;
use crate::upstreams::announces_body;

/// Whether nobody can tell when this response is complete. The library would keep its connection, so the exchange has to
/// break off.
pub(super) fn is_doubtful(session: &Session, response: &ResponseHeader) -> bool {
    let bodiless = session.req_header().method == http::Method::HEAD
        || matches!(response.status, http::StatusCode::NO_CONTENT | http::StatusCode::NOT_MODIFIED);
    let length = response.headers.get(http::header::CONTENT_LENGTH);
    // What is no number is no promise of nothing.
    let length = length.map(|length| length.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX));
    bodiless && announces_body(length, response.headers.contains_key(http::header::TRANSFER_ENCODING))
}

impl Gateway {
    /// Writes a response of which only the head is believed.
    pub(super) async fn hand_on(
        &self,
        session: &mut Session,
        mut head: ResponseHeader,
        ctx: &Context,
    ) -> pingora::Result<()> {
        if head.status == http::StatusCode::NO_CONTENT || head.headers.contains_key(http::header::TRANSFER_ENCODING) {
            head.remove_header(&http::header::CONTENT_LENGTH);
            head.remove_header(&http::header::TRANSFER_ENCODING);
        }
        let is_tls = ctx.connection.as_ref().is_some_and(|connection| connection.is_tls());
        decorate(&mut head, &ctx.facts, is_tls)?;
        session.set_keepalive(None);
        session.write_response_header(Box::new(head), true).await
    }
}
