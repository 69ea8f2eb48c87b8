//! The pure parts of this module as functions of bytes, and requests over HTTP/1.1 to an upstream alone, for benchmarks
//! and fuzzing outside this crate. A running gateway uses none of it.

use std::sync::Arc;
use std::time::Duration;

use contract::time::UnixMillis;
use pingora::{Error, ErrorType};
use pingora_http::RequestHeader;

use super::downstream::Downstream as _;
use super::downstream::http1::{Http1Client, Http1Head};
use super::upstream::http1_response as response;
use super::upstream::{Request, RequestBody, UpstreamCall, WaitLimits};
use crate::answer::Answer;
use crate::decorate::{PresentFields, add_fields, is_removed};
use crate::facts::Facts;
use crate::forward;
use crate::request_id::RequestId;
use listener::Client;
use upstreams::{AnnouncedBody, PoolKey, Requirements, Upstream};

/// The head at the start of `bytes` as a client gets it, and its length in `bytes`. `Ok(None)`: it is incomplete.
pub fn response_head(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, InvalidHead> {
    let mut out = Http1Head::new(false);
    let head = response::read(bytes, false, |_| false, &mut out).map_err(|_| InvalidHead)?;
    Ok(head.map(|head| (out.into_bytes(), head.bytes)))
}

/// The same with the fields that the gateway adds, except those of the connection.
pub(crate) fn client_head(bytes: &[u8], facts: &Facts) -> Result<Vec<u8>, InvalidHead> {
    let mut out = Http1Head::new(false);
    let head = response::read(bytes, false, |name| is_removed(name, facts), &mut out).map_err(|_| InvalidHead)?;
    let head = head.ok_or(InvalidHead)?;
    add_fields(facts, true, head.head.present, &mut out).map_err(|_| InvalidHead)?;
    Ok(out.into_bytes())
}

/// The head of an answer of the gateway, except the fields of the connection.
pub(crate) fn answer_head(answer: Answer, facts: &Facts) -> Result<Vec<u8>, InvalidHead> {
    let mut out = Http1Head::new(false);
    answer.write(&mut out).map_err(|_| InvalidHead)?;
    add_fields(facts, true, PresentFields::default(), &mut out).map_err(|_| InvalidHead)?;
    Ok(out.into_bytes())
}

/// The request of a client, on its way to an upstream without the stages before, and without retries.
pub struct Forwarding<'a> {
    client: Http1Client<'a>,
    head: RequestHeader,
    announced: AnnouncedBody,
    upstream: Arc<Upstream>,
    facts: Facts,
}

impl<'a> Forwarding<'a> {
    /// Takes the pending request of a client.
    pub fn new(
        client: &'a mut dyn Client,
        announced: AnnouncedBody,
        upstream: Arc<Upstream>,
    ) -> Result<Self, InvalidHead> {
        let (client, head, _) = Http1Client::accept(client).map_err(|_| InvalidHead)?;
        let facts = Facts::new(RequestId::new(0), UnixMillis(0), Duration::ZERO);
        Ok(Self { client, head, announced, upstream, facts })
    }

    /// Sends it, perhaps for another time. `head` becomes the head of the response without the gateway's fields; the
    /// client gets the body without framing. The connection is kept as usual.
    pub async fn send(&mut self, head: &mut Vec<u8>) -> pingora::Result<()> {
        let Self { client, head: request_head, announced, upstream, facts } = self;
        facts.upstream.interim_responses = 0;
        let (is_safe, to_head) = (request_head.method.is_safe(), request_head.method == http::Method::HEAD);
        let requirements =
            Requirements { pool_key: PoolKey::default(), may_be_repeated: is_safe, received_after: None };
        let wait_limits = WaitLimits::new(upstream.settings.first_byte_timeout, None);
        let request = Request { head: request_head, switches: false, requirements, wait_limits };
        let mut body = RequestBody::new(*announced, u64::MAX, Some(upstream));
        let endpoint = upstream.endpoints.choose(None, is_safe, Duration::ZERO);
        let endpoint = endpoint.ok_or_else(|| Error::explain(ErrorType::ConnectNoRoute, "there is no address"))?;
        let opened = UpstreamCall::open((upstream, &endpoint), &request, &mut body, Duration::ZERO).await;
        let (mut call, _) = opened.map_err(|failed| failed.error)?;
        let mut out = client.head();
        let response = loop {
            let Some(response) = call.take_head(to_head, |_| false, &mut out)? else {
                call.receive_head(&mut body, client).await?;
                continue;
            };
            forward::inspect(response.status, response.fields_bytes, facts)?;
            if !response.status.is_informational() {
                break response;
            }
            out = client.head();
        };
        *head = out.into_bytes();
        if !response.ends {
            call.relay(&mut body, client, || Ok(()), &mut 0).await?;
        }
        call.keep(&endpoint);
        Ok(())
    }
}

/// The bytes are not a valid head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidHead;
