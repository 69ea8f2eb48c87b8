//! A client that speaks gRPC-Web: gRPC for web pages, which can neither read trailers nor, over HTTP/1.1, send gRPC.
//! Its call is translated for an upstream that speaks gRPC (`grpc_web = true`).
//!
//! Messages have the same form in both protocols. Three things differ: the content type; the trailers, which are the
//! last frame of the body here; and the text form, whose bodies are in base64. A refusal of the gateway has its status in
//! the head, as in gRPC: libraries reject a response of another content type before they read its HTTP status.

mod messages;
mod text;

use std::borrow::Cow;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use pingora::{Error, ErrorType};
use pingora_http::RequestHeader;
use tokio::time::Instant;

use self::messages::Messages;
use self::text::{decode, encode};
use super::Downstream;
use crate::decorate::ResponseSink;
use crate::exchange::Exchange;
use crate::exchange::upstream::write_trailers;
use crate::grpc::{self, WebForm, begins_suffix};
use contract::rejection::Rejection;
use upstreams::AnnouncedBody;

/// The first byte of the frame with the trailers.
const TRAILERS_FLAG: u8 = 0x80;

impl Exchange<'_> {
    /// Translates a gRPC-Web call and forwards it; returns what [`Self::finish`] does.
    pub(in crate::exchange) async fn forward_grpc_web<D: Downstream>(
        &mut self,
        form: WebForm,
        client: &mut D,
        announced: AnnouncedBody,
    ) -> (bool, Option<Box<Error>>) {
        self.facts.connection.is_grpc = true;
        let mut client = GrpcWebClient::new(client, form);
        let served = match translate(form, &mut self.head, announced) {
            Ok(announced) => self.forward(&mut client, announced).await,
            Err(error) => Err(error),
        };
        self.finish(&mut client, served).await
    }
}

/// Makes a gRPC request of the head of a call in this form. Returns the body that the upstream gets: the text form is
/// longer than the messages in it.
///
/// # Errors
/// Never: the new content type is part of the old one.
fn translate(form: WebForm, head: &mut RequestHeader, announced: AnnouncedBody) -> pingora::Result<AnnouncedBody> {
    let kind = head.headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let suffix = kind.get(form.content_type().len()..).unwrap_or_default();
    let kind = HeaderValue::from_bytes(&[grpc::CONTENT_TYPE.as_bytes(), suffix].concat());
    let kind = kind.map_err(|error| Error::because(ErrorType::InternalError, "a content type", error))?;
    head.insert_header(header::CONTENT_TYPE, kind)?;
    head.insert_header(header::TE, "trailers")?;
    if form == WebForm::Binary || announced == AnnouncedBody::None {
        return Ok(announced);
    }
    head.remove_header(&header::CONTENT_LENGTH);
    Ok(AnnouncedBody::Unknown)
}

/// The client of one gRPC-Web call, over either version of HTTP.
struct GrpcWebClient<'a, D> {
    client: &'a mut D,
    form: WebForm,
    /// The response is one of gRPC, so it is translated. Other responses, such as an error of another proxy, are not.
    is_call: bool,
    /// Bytes of the request as they arrived, in base64.
    received: BytesMut,
    /// The request's body is not valid base64.
    is_malformed: bool,
    /// Translated bytes of the response that wait for the client.
    waiting: BytesMut,
    messages: Messages,
}

impl<'a, D: Downstream> GrpcWebClient<'a, D> {
    fn new(client: &'a mut D, form: WebForm) -> Self {
        Self {
            client,
            form,
            is_call: false,
            received: BytesMut::new(),
            is_malformed: false,
            waiting: BytesMut::new(),
            messages: Messages::default(),
        }
    }

    /// Translates these bytes of the response, which follow the ones before.
    fn translate(&mut self, bytes: BytesMut) {
        match self.form {
            WebForm::Binary => self.waiting = bytes,
            WebForm::Text => encode(&bytes, &mut self.waiting),
        }
    }

    /// Writes the translated bytes.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<pingora::Result<()>> {
        let mut left = self.waiting.len();
        if left == 0 {
            return Poll::Ready(Ok(()));
        }
        self.client.poll_data(&mut self.waiting, &mut left, false, cx)
    }

    /// Writes the trailers as a frame. Only between two messages: within one they would be read as a part of it.
    async fn write_trailers(&mut self, trailers: &HeaderMap) -> pingora::Result<()> {
        if !self.waiting.is_empty() || !self.messages.is_between() {
            self.client.break_off().await;
            return Err(Error::explain(ErrorType::InvalidHTTPHeader, "the response ended within a message").into_up());
        }
        self.translate(trailers_frame(trailers));
        poll_fn(|cx| self.poll_waiting(cx)).await
    }
}

/// The last frame of a response: a flag, the length in four bytes, and the fields as lines.
fn trailers_frame(trailers: &HeaderMap) -> BytesMut {
    let mut lines = BytesMut::new();
    write_trailers(Some(trailers), &mut lines);
    // A frame has no blank line at its end.
    lines.truncate(lines.len().saturating_sub(2));
    let mut frame = BytesMut::with_capacity(lines.len() + 5);
    frame.put_u8(TRAILERS_FLAG);
    // Upstreams' heads and trailers are limited to 72 KiB.
    frame.put_u32(u32::try_from(lines.len()).unwrap_or(u32::MAX));
    frame.put_slice(&lines);
    frame
}

/// The head of a response. How long the body is depends on its content type, so these fields are written at its end.
pub(crate) struct GrpcWebHead<H> {
    head: H,
    form: WebForm,
    is_call: bool,
    /// The status has no body that could be translated.
    is_bodiless: bool,
    length: Option<Bytes>,
    is_chunked: bool,
}

impl<H: ResponseSink> GrpcWebHead<H> {
    /// Ends the head. The length of a translated body is unknown.
    fn finish(mut self) -> pingora::Result<H> {
        if self.is_call || self.is_chunked {
            self.head.field("Transfer-Encoding", b"chunked")?;
        } else if let Some(length) = &self.length {
            self.head.field("Content-Length", length)?;
        }
        Ok(self.head)
    }
}

impl<H: ResponseSink> ResponseSink for GrpcWebHead<H> {
    fn status(&mut self, status: StatusCode, reason: &str) -> pingora::Result<()> {
        self.is_bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        self.head.status(status, reason)
    }

    fn field(&mut self, name: &str, value: &[u8]) -> pingora::Result<()> {
        if name.eq_ignore_ascii_case("content-length") {
            self.length = Some(Bytes::copy_from_slice(value));
            return Ok(());
        }
        if name.eq_ignore_ascii_case("transfer-encoding") {
            self.is_chunked = true;
            return Ok(());
        }
        let is_kind = name.eq_ignore_ascii_case("content-type") && !self.is_bodiless;
        match value.strip_prefix(grpc::CONTENT_TYPE.as_bytes()).filter(|suffix| is_kind && begins_suffix(suffix)) {
            Some(suffix) => {
                self.is_call = true;
                self.head.field(name, &[self.form.content_type().as_bytes(), suffix].concat())
            }
            None => self.head.field(name, value),
        }
    }
}

impl<D: Downstream> Downstream for GrpcWebClient<'_, D> {
    type Head = GrpcWebHead<D::Head>;

    /// As the last frame of the body.
    const TAKES_TRAILERS: bool = true;

    fn head(&self) -> Self::Head {
        let (head, form) = (self.client.head(), self.form);
        GrpcWebHead { head, form, is_call: false, is_bodiless: false, length: None, is_chunked: false }
    }

    fn may_end_call(&self) -> bool {
        self.is_call
    }

    fn may_switch(&self) -> bool {
        false
    }

    fn close_after_response(&mut self) {
        self.client.close_after_response();
    }

    async fn interim(&mut self, head: Self::Head) -> pingora::Result<()> {
        self.client.interim(head.head).await
    }

    async fn switch(&mut self, _head: Self::Head) -> pingora::Result<()> {
        Err(Error::explain(ErrorType::InternalError, "a call cannot switch protocols"))
    }

    async fn begin(&mut self, head: Self::Head, ends: bool, chunked: bool) -> pingora::Result<()> {
        self.is_call = head.is_call;
        // A response without a body (`Trailers-Only`) has an empty one here, so that HTTP/1.1 clients see its end.
        let (ends, chunked) = if self.is_call { (false, true) } else { (ends, chunked) };
        self.client.begin(head.finish()?, ends, chunked).await
    }

    fn poll_data(
        &mut self,
        from: &mut BytesMut,
        left: &mut usize,
        last: bool,
        cx: &mut Context<'_>,
    ) -> Poll<pingora::Result<()>> {
        if !self.is_call {
            return self.client.poll_data(from, left, last, cx);
        }
        if *left > 0 {
            let bytes = from.split_to(std::mem::take(left));
            self.messages.pass(&bytes);
            self.translate(bytes);
        }
        self.poll_waiting(cx)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<pingora::Result<()>> {
        self.client.poll_flush(cx)
    }

    async fn end(&mut self, trailers: Option<HeaderMap>) -> pingora::Result<()> {
        if let Some(trailers) = trailers.as_ref().filter(|_| self.is_call) {
            self.write_trailers(trailers).await?;
        }
        self.client.end(None).await
    }

    async fn break_off(&mut self) {
        self.client.break_off().await;
    }

    async fn answer(&mut self, head: Self::Head, body: Cow<'static, str>) -> pingora::Result<()> {
        self.client.answer(head.finish()?, body).await
    }

    fn poll_body(&mut self, into: &mut BytesMut, cx: &mut Context<'_>) -> Poll<pingora::Result<usize>> {
        if self.form == WebForm::Binary {
            return self.client.poll_body(into, cx);
        }
        loop {
            let ended = ready!(self.client.poll_body(&mut self.received, cx))? == 0;
            let before = into.len();
            if decode(&mut self.received, into).is_none() || ended && !self.received.is_empty() {
                self.is_malformed = true;
                let error = Error::explain(ErrorType::ReadError, "the body of the call is not valid base64");
                return Poll::Ready(Err(error.into_down()));
            }
            let decoded = into.len() - before;
            if ended || decoded > 0 {
                return Poll::Ready(Ok(decoded));
            }
        }
    }

    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<pingora::Result<Option<HeaderMap>>> {
        self.client.poll_trailers(cx)
    }

    fn refusal(&self) -> Option<Rejection> {
        if self.is_malformed { Some(Rejection::BadRequest) } else { self.client.refusal() }
    }

    fn body_bytes(&self) -> u64 {
        self.client.body_bytes()
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.client.poll_gone(cx)
    }

    fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        self.client.poll_deadline(deadline, cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::downstream::http1::Http1Head;

    fn of(kind: &'static str) -> (Option<WebForm>, RequestHeader) {
        let mut head = RequestHeader::build("POST", b"/a", None).unwrap();
        head.insert_header("content-type", kind).unwrap();
        head.insert_header("content-length", "8").unwrap();
        (WebForm::of(&head.headers), head)
    }

    #[test]
    fn a_call_is_recognised_by_its_content_type_and_translated_to_grpc() {
        for (kind, form, translated) in [
            ("application/grpc-web", WebForm::Binary, "application/grpc"),
            ("application/grpc-web+proto", WebForm::Binary, "application/grpc+proto"),
            ("application/grpc-web-text", WebForm::Text, "application/grpc"),
            ("application/grpc-web-text+proto;a=b", WebForm::Text, "application/grpc+proto;a=b"),
        ] {
            let (found, mut head) = of(kind);
            assert_eq!(found, Some(form), "{kind}");
            let announced = translate(form, &mut head, AnnouncedBody::Length(8)).unwrap();
            assert_eq!(head.headers.get("content-type").unwrap(), translated, "{kind}");
            assert_eq!(head.headers.get("te").unwrap(), "trailers", "{kind}");
            let is_text = form == WebForm::Text;
            assert_eq!(announced == AnnouncedBody::Unknown, is_text, "{kind}");
            assert_eq!(head.headers.contains_key("content-length"), !is_text, "{kind}");
        }
        for kind in ["application/grpc", "application/grpc-webx", "application/grpc-web-textx", "text/plain"] {
            assert_eq!(of(kind).0, None, "{kind}");
        }
    }

    #[test]
    fn trailers_are_a_frame_of_lines() {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        assert_eq!(trailers_frame(&trailers), &b"\x80\0\0\0\x10grpc-status: 0\r\n"[..]);
    }

    #[test]
    fn only_responses_of_grpc_are_translated() {
        let written = |kind: &[u8]| {
            let mut head = GrpcWebHead {
                head: Http1Head::new(false),
                form: WebForm::Text,
                is_call: false,
                is_bodiless: false,
                length: None,
                is_chunked: false,
            };
            head.field("Content-Length", b"5").unwrap();
            head.field("Content-Type", kind).unwrap();
            String::from_utf8(head.finish().unwrap().into_bytes()).unwrap()
        };
        let call = "Content-Type: application/grpc-web-text+proto\r\nTransfer-Encoding: chunked\r\n";
        assert_eq!(written(b"application/grpc+proto"), call);
        assert_eq!(written(b"text/html"), "Content-Type: text/html\r\nContent-Length: 5\r\n");
    }
}
