//! The same upstream over HTTP/2: a script in HTTP/1.1 is sent as frames, and requests are recorded as if they had come
//! in HTTP/1.1.

use std::fmt::Write as _;
use std::sync::Arc;

use ::h2::Reason;
use bytes::Bytes;
use parking_lot::Mutex;

use super::{Act, Book, Received, Upstream};
use crate::world::h2_upstream::{H2Request, H2Upstream, send};
use crate::world::wire::Head;

impl Upstream {
    pub(crate) async fn over_http2() -> Self {
        let book = Arc::new(Mutex::new(Book::default()));
        let shared = book.clone();
        let upstream = H2Upstream::start(100, move |request| serve(request, shared.clone())).await;
        Self { address: upstream.address, book }
    }
}

async fn serve(mut request: H2Request, book: Arc<Mutex<Book>>) {
    let raw_head = raw(&request.head);
    let mut received = Received {
        connection: request.connection,
        head: Head::parse(&raw_head),
        raw_head,
        body: Vec::new(),
        complete: false,
    };
    let act = {
        let mut book = book.lock();
        book.heads += 1;
        book.connections = book.connections.max(request.connection + 1);
        book.acts.pop_front().unwrap_or_else(|| Act::body("200 OK", "[]"))
    };
    if let Act::AnswerBeforeBody(bytes) | Act::AnswerBeforeBodyAndClose(bytes) = &act {
        answer(&mut request, bytes).await;
    }
    if !matches!(act, Act::AnswerBeforeBodyAndClose(_)) {
        (received.body, received.complete) = read(&mut request).await;
    }
    book.lock().requests.push(received);
    match act {
        Act::Answer(bytes) | Act::AnswerAndClose(bytes) | Act::AnswerAndReset(bytes) => {
            answer(&mut request, &bytes).await;
        }
        Act::AnswerBeforeBody(_) | Act::AnswerBeforeBodyAndClose(_) => {}
        Act::AnswerInTwo(..) | Act::Hang | Act::Echo => unreachable!("no test has an upstream of HTTP/2 do so"),
    }
}

/// The head in the form of HTTP/1.1.
fn raw(head: &http::request::Parts) -> String {
    let target = head.uri.path_and_query().expect("a target");
    let mut raw = format!("{} {target} HTTP/1.1\r\nhost: {}\r\n", head.method, head.uri.authority().expect("a host"));
    for (name, value) in &head.headers {
        write!(raw, "{name}: {}\r\n", value.to_str().expect("text")).unwrap();
    }
    raw
}

/// The body, and whether all of it came.
async fn read(request: &mut H2Request) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    while let Some(piece) = request.body.data().await {
        let Ok(piece) = piece else { return (all, false) };
        let _ = request.body.flow_control().release_capacity(piece.len());
        all.extend_from_slice(&piece);
    }
    (all, request.body.trailers().await.is_ok())
}

/// Sends this HTTP/1.1 response as frames. A truncated one resets its stream.
async fn answer(request: &mut H2Request, bytes: &[u8]) {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut fields);
    let Ok(httparse::Status::Complete(start)) = response.parse(bytes) else {
        return request.respond.send_reset(Reason::INTERNAL_ERROR);
    };
    let own = ["connection", "keep-alive", "transfer-encoding", "x-own"];
    let mut head = http::Response::builder().status(response.code.unwrap());
    let (mut length, mut chunked) = (None, false);
    for field in response.headers.iter() {
        let name = field.name.to_ascii_lowercase();
        match name.as_str() {
            "content-length" => length = std::str::from_utf8(field.value).unwrap().parse::<usize>().ok(),
            "transfer-encoding" => chunked = true,
            _ => {}
        }
        if !own.contains(&name.as_str()) {
            head = head.header(name, field.value);
        }
    }
    let body = if chunked { unchunked(&bytes[start..]) } else { bytes[start..].to_vec() };
    let has_body = request.head.method != http::Method::HEAD && !body.is_empty();
    let is_whole = request.head.method == http::Method::HEAD || length.is_none_or(|length| length == body.len());
    let Ok(mut stream) = request.respond.send_response(head.body(()).unwrap(), !has_body && is_whole) else { return };
    if has_body && send(&mut stream, Bytes::from(body), is_whole).await.is_ok() && !is_whole {
        stream.send_reset(Reason::INTERNAL_ERROR);
    }
}

/// The content of chunks.
fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while let Ok(httparse::Status::Complete((start, size @ 1..))) = httparse::parse_chunk_size(bytes) {
        let end = start + usize::try_from(size).unwrap();
        all.extend_from_slice(&bytes[start..end]);
        bytes = &bytes[end + "\r\n".len()..];
    }
    all
}
