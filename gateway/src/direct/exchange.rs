//! One request and its response.

use std::io;

use bytes::{Buf as _, BufMut as _};
use pingora::http::RequestHeader;
use pingora::protocols::http::date;
use pingora::{Error, ErrorSource, ErrorType};
use tokio::io::AsyncWriteExt as _;

use super::response::{self, ResponseHead};
use super::upstream::UpstreamConnection;
use super::{relay, request};
use crate::answer::{Answer, Refusal};
use crate::decorate::{is_foreign, ours};
use crate::door::{Client, Connection, Served};
use crate::facts::Facts;
use crate::forward;
use crate::proxy::{ATTEMPTS_MAX, Gateway, connection_facts, explain};
use crate::telemetry::Entry;

/// Bytes of a usual response's head.
const HEAD_BYTES_USUAL: usize = 1_024;

/// See the module.
pub(super) struct Exchange<'a> {
    gateway: &'a Gateway,
    connection: &'a Connection,
    head: RequestHeader,
    keep_alive: bool,
    facts: Box<Facts>,
    /// Of the response that was begun; 0: none was.
    status: u16,
    /// Of the response, as far as it was written.
    body_bytes: u64,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(gateway: &'a Gateway, connection: &'a Connection, head: RequestHeader, keep_alive: bool) -> Self {
        Self { gateway, connection, head, keep_alive, facts: gateway.begin(), status: 0, body_bytes: 0 }
    }

    /// Decides, answers or forwards, counts and logs.
    pub(super) async fn serve(mut self, client: &mut dyn Client) -> Served {
        let decided = self.gateway.decide(&self.head, false, self.connection, &mut self.facts).await;
        let served = match decided {
            Ok((target, _)) => {
                self.facts.target = Some(target);
                self.forward(client).await
            }
            Err(answer) => self.answer(client, answer).await,
        };
        let (served, error) = match served {
            Ok(served) => (served, None),
            Err(error) => (self.fail(client, &error).await, Some(error)),
        };
        let entry = Entry {
            status: self.status,
            method: self.head.method.as_str(),
            path: self.head.uri.path(),
            bytes_sent: usize::try_from(self.body_bytes).unwrap_or(usize::MAX),
            connection: connection_facts(Some(self.connection)),
            error: error.as_deref().map(explain),
        };
        self.gateway.account(&self.facts, &entry);
        served
    }

    /// What the gateway says itself.
    async fn answer(&mut self, client: &mut dyn Client, answer: Answer) -> pingora::Result<Served> {
        let closes = self.closes();
        let to_head = self.is_head();
        let (bytes, status, sent) = self.gateway.bytes(&mut self.facts, answer, to_head, closes, self.connection)?;
        (self.status, self.body_bytes) = (status, sent as u64);
        client.write_all(&bytes).await.or_else(unsent)?;
        client.flush().await.or_else(unsent)?;
        Ok(if closes { Served::Last } else { Served::Whole })
    }

    /// What became of a request that could not be served: an answer, while there is room for one.
    async fn fail(&mut self, client: &mut dyn Client, error: &Error) -> Served {
        let Some(rejection) = forward::rejection(error) else { return Served::Cut };
        self.facts.refused = Some(rejection);
        if self.status != 0 {
            return Served::Cut;
        }
        self.answer(client, Refusal::new(rejection).into()).await.unwrap_or_else(|failed| {
            tracing::debug!(error = %failed, "a refusal could not be written");
            Served::Cut
        })
    }

    async fn forward(&mut self, client: &mut dyn Client) -> pingora::Result<Served> {
        let now = self.gateway.clock.now_seconds();
        forward::rewrite(&mut self.head, &self.facts, self.connection, &self.gateway.identity, now)?;
        let request = request::bytes(&self.head);
        let mut out = Vec::with_capacity(HEAD_BYTES_USUAL);
        let (mut upstream, head) = self.ask(&request, client, &mut out).await?;
        let closes = self.closes();
        self.finish_head(closes, &mut out)?;
        self.status = head.status.as_u16();
        client.write_all(&out).await.or_else(unsent)?;
        let mut framing = head.framing;
        let in_time = (&*self.facts, &*self.gateway.clock);
        relay::relay(&mut upstream, &mut framing, client, in_time, &mut self.body_bytes).await?;
        if let Some(endpoint) = self.facts.endpoint.as_ref().filter(|_| head.reusable) {
            upstream.rest(endpoint);
        }
        client.flush().await.or_else(unsent)?;
        Ok(if closes { Served::Last } else { Served::Whole })
    }

    /// Sends the request and reads the head of the response, twice if the first time cannot have done anything.
    async fn ask(
        &mut self,
        request: &[u8],
        client: &mut dyn Client,
        out: &mut Vec<u8>,
    ) -> pingora::Result<(UpstreamConnection, ResponseHead)> {
        loop {
            let (upstream, endpoint) = forward::choose(&mut self.facts, self.gateway.clock.monotonic())
                .ok_or_else(|| Error::explain(ErrorType::ConnectNoRoute, "the upstream has no address"))?;
            let mut opened = match UpstreamConnection::open(&upstream, &endpoint).await {
                Ok(opened) => opened,
                // Nothing was sent yet: another address cannot hurt.
                Err(error) => {
                    endpoint.failed(self.gateway.clock.monotonic());
                    self.gateway.pipeline.upstreams.look_again();
                    if upstream.endpoints.len() > 1 && self.facts.attempts < ATTEMPTS_MAX {
                        continue;
                    }
                    return Err(error);
                }
            };
            match self.exchange(&mut opened, request, client, out).await {
                Ok(head) => {
                    endpoint.worked();
                    self.facts.upstream_answered = Some(self.gateway.clock.monotonic());
                    return Ok((opened, head));
                }
                // An idle connection may have died before the request was read. Only requests that change nothing are
                // sent again: of any other nobody knows whether it was carried out.
                Err(error) => {
                    let unread = opened.reused && opened.buffer.is_empty() && self.facts.interim_responses == 0;
                    let may_repeat = unread
                        && has_died(&error)
                        && self.head.method.is_safe()
                        && self.facts.attempts < ATTEMPTS_MAX
                        && upstream.retries.spend();
                    if !may_repeat {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// One attempt, to the head of the final response.
    async fn exchange(
        &mut self,
        upstream: &mut UpstreamConnection,
        request: &[u8],
        client: &mut dyn Client,
        out: &mut Vec<u8>,
    ) -> pingora::Result<ResponseHead> {
        upstream.send(request, client).await?;
        loop {
            if upstream.receive_first(client).await? == 0 {
                return Err(Error::explain(ErrorType::ConnectionClosed, "no response").into_up());
            }
            let to_head = self.is_head();
            while let Some(head) = response::read(&upstream.buffer, to_head, |name| is_foreign(name, &self.facts), out)?
            {
                forward::inspect(head.status, head.fields_bytes, &mut self.facts)?;
                forward::in_time(&self.facts, self.gateway.clock.monotonic())?;
                upstream.buffer.advance(head.bytes);
                if !head.status.is_informational() {
                    return Ok(head);
                }
                out.put_slice(b"\r\n");
                client.write_all(out).await.or_else(unsent)?;
                client.flush().await.or_else(unsent)?;
                out.clear();
            }
            if upstream.buffer.len() > forward::RESPONSE_HEAD_BYTES_MAX {
                let why = "the head of the response is too large";
                return Err(Error::explain(ErrorType::InvalidHTTPHeader, why).into_up());
            }
        }
    }

    /// Adds what every response carries.
    fn finish_head(&self, closes: bool, out: &mut Vec<u8>) -> pingora::Result<()> {
        let mut say = |name: &str, value: &[u8]| {
            out.put_slice(name.as_bytes());
            out.put_slice(b": ");
            out.put_slice(value);
            out.put_slice(b"\r\n");
        };
        ours(&self.facts, self.connection.is_tls(), |name, value| {
            say(name, value.as_bytes());
            Ok(())
        })?;
        say("Date", date::get_cached_date().as_bytes());
        say("Connection", if closes { b"close" } else { b"keep-alive" });
        out.put_slice(b"\r\n");
        Ok(())
    }

    fn closes(&self) -> bool {
        !self.keep_alive || self.connection.should_close()
    }

    fn is_head(&self) -> bool {
        self.head.method == http::Method::HEAD
    }
}

/// Whether the connection ended by itself, as an idle one may at any moment.
fn has_died(error: &Error) -> bool {
    *error.esource() == ErrorSource::Upstream
        && matches!(error.etype(), ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::WriteError)
}

/// The client did not take what it was sent.
pub(super) fn unsent<T>(error: io::Error) -> pingora::Result<T> {
    let kind = if error.kind() == io::ErrorKind::TimedOut { ErrorType::WriteTimedout } else { ErrorType::WriteError };
    Err(Error::because(kind, "to the client", error).into_down())
}
