//! Chooses the connection of a request: a kept one, or a new one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pingora::{Error, ErrorType};

use super::http1::Http1Call;
use super::http2::{self, Http2Call};
use super::{Request, RequestBody, UpstreamCall, Version};
use crate::exchange::retry::{Failed, Failure};
use crate::facts::ConnectionKind;
use upstreams::{
    DialError, DialFailure, Endpoint, Lease, Lifetime, Stream, Upstream, dial, dial_any, negotiated, race,
};

/// How long a server may take from accepting a connection to its first HTTP/2 frame.
const FIRST_FRAME_MAX: Duration = Duration::from_secs(8);

/// How long a new connection may take until its first HTTP/2 frame. The kernel of a paused server still accepts
/// connections. So with a single address a request waits for the first frame as it waits for a response; with several
/// addresses it tries another one after `connect_timeout`.
fn opening_time(upstream: &Upstream) -> Duration {
    let settings = &upstream.settings;
    longest_opening(settings.connect_timeout, settings.first_byte_timeout, upstream.endpoints.len())
}

fn longest_opening(connect: Duration, first_byte: Duration, addresses: usize) -> Duration {
    if addresses > 1 { connect } else { connect.max(first_byte.min(FIRST_FRAME_MAX)) }
}

/// Opens a call for a request at this address of the upstream; or at another one, which is returned too, if this one
/// does not answer soon. `now` is the monotonic time.
pub(in crate::exchange) async fn open(
    (upstream, endpoint): (&Arc<Upstream>, &Arc<Endpoint>),
    request: &Request<'_>,
    request_body: &mut RequestBody,
    now: Duration,
) -> Result<(UpstreamCall, Option<Arc<Endpoint>>), Failed> {
    let transport = &upstream.settings.transport;
    // Over TLS a WebSocket is asked for by HTTP/1.1, which nearly all servers speak too.
    let http2 = !request.switches || transport.tls().is_none();
    let mut moved = None;
    if !http2 || !transport.multiplexes(endpoint) {
        if let Some(kept) = endpoint.idle.take(&request.requirements, upstream.idle_max()) {
            return Ok((http1(kept, true, request, request_body), None));
        }
        let (stream, other) = connect(upstream, endpoint, http2, now).await?;
        let endpoint = other.as_ref().unwrap_or(endpoint);
        if !stream.agreed_on_http2() {
            if http2 && stream.is_tls() {
                endpoint.sessions.set_http2_agreed(false);
            }
            let connection = (stream, endpoint.connections.begin());
            return Ok((http1(connection, false, request, request_body), other));
        }
        endpoint.sessions.add_connected(&request.requirements, opening_time(upstream), stream);
        moved = other;
    }
    let endpoint = moved.as_ref().unwrap_or(endpoint);
    let (lease, other) = match Box::pin(lease(upstream, endpoint, request, now)).await {
        Ok(leased) => leased,
        // The upstream may no longer speak HTTP/2.
        Err(error) if error.kind == DialFailure::Protocol && transport.tls().is_some() => {
            endpoint.sessions.set_http2_agreed(false);
            return Err(unopened(endpoint, Failure::Unsent, error));
        }
        Err(error) => return Err(unopened(endpoint, Failure::Unconnected, error)),
    };
    let kind = ConnectionKind { reused: lease.reused, http2: true, tls: transport.tls().is_some() };
    let head = http2::request_head(request.head, transport.url_scheme())?;
    request_body.begin(true, true);
    match Http2Call::begin(lease, head, request_body, request.switches) {
        Ok(call) => Ok((UpstreamCall::new(Version::Http2(Box::new(call)), request, kind), other.or(moved))),
        Err(error) => {
            let error = Error::because(ErrorType::H2Error, "writing to the upstream", error).into_up();
            Err(Failed { failure: Failure::Unsent, ..error.into() })
        }
    }
}

/// A new connection.
async fn connect(
    upstream: &Upstream,
    endpoint: &Arc<Endpoint>,
    http2: bool,
    now: Duration,
) -> Result<(Stream, Option<Arc<Endpoint>>), Failed> {
    let settings = &upstream.settings;
    let connected = if upstream.endpoints.len() > 1 {
        Box::pin(dial_any(upstream, endpoint, http2, now)).await
    } else {
        dial(&settings.transport, endpoint, http2, settings.connect_timeout).await.map(|stream| (stream, None))
    };
    connected.map_err(|error| unopened(endpoint, Failure::Unconnected, error))
}

fn http1(
    (stream, lifetime): (Stream, Lifetime),
    reused: bool,
    request: &Request<'_>,
    request_body: &mut RequestBody,
) -> UpstreamCall {
    let kind = ConnectionKind { reused, http2: false, tls: stream.is_tls() };
    request_body.begin(reused && request.requirements.may_be_repeated, false);
    UpstreamCall::new(Version::Http1(Http1Call::new((stream, lifetime), request, request_body)), request, kind)
}

/// Leases a connection of HTTP/2 at this address, or at another one, which is returned too.
async fn lease(
    upstream: &Arc<Upstream>,
    endpoint: &Arc<Endpoint>,
    request: &Request<'_>,
    now: Duration,
) -> Result<(Lease, Option<Arc<Endpoint>>), DialError> {
    if upstream.endpoints.len() == 1 {
        return lease_at(upstream, endpoint, request, now).await.map(|lease| (lease, None));
    }
    let leasing = |endpoint: Arc<Endpoint>| async move { lease_at(upstream, &endpoint, request, now).await };
    // A late answer is not a failure: the address may be far away, or all its streams may be in use.
    race(&upstream.endpoints, endpoint, (now, false), leasing).await
}

async fn lease_at(
    upstream: &Arc<Upstream>,
    endpoint: &Arc<Endpoint>,
    request: &Request<'_>,
    now: Duration,
) -> Result<Lease, DialError> {
    let connect = || {
        let (upstream, endpoint, began) = (upstream.clone(), endpoint.clone(), Instant::now());
        negotiated(async move {
            let settings = &upstream.settings;
            let dialed = dial(&settings.transport, &endpoint, true, settings.connect_timeout).await;
            // Recorded here, because the request may have gone to another address meanwhile.
            if let Err(error) = &dialed {
                endpoint.failed_because(error, now + began.elapsed());
            }
            dialed
        })
    };
    endpoint.sessions.lease(&request.requirements, opening_time(upstream), connect).await
}

/// The failure of an attempt without a connection.
fn unopened(endpoint: &Endpoint, failure: Failure, error: DialError) -> Failed {
    if failure == Failure::Unconnected {
        endpoint.record_failure(&error);
    }
    let connect_error = Error::explain(error.kind.error_type(), "connecting to the upstream").into_up();
    Failed { failure, error: connect_error, late: false, reason: error.reason, sent_at: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paused_server_is_waited_for_as_for_a_response_where_there_is_no_other() {
        let seconds = Duration::from_secs;
        for (connect, first_byte, addresses, expected) in
            [(1, 10, 1, 8), (1, 5, 1, 5), (1, 60, 1, 8), (10, 5, 1, 10), (1, 10, 2, 1)]
        {
            let longest = longest_opening(seconds(connect), seconds(first_byte), addresses);
            assert_eq!(longest, seconds(expected), "{connect} {first_byte} {addresses}");
        }
    }
}
