//! Forwards a request: rewrites its head, chooses the address, and checks time limits and the head of the response.

use std::sync::Arc;

use chassis::clock::Clock;
use contract::identity::{Caller, Identity};
use http::header::{self, HeaderName, InvalidHeaderValue};
use http::{HeaderValue, StatusCode, Version};
use listener::fields::is_method_override;
use pingora::{ErrorSource, ErrorType, OrErr as _};
use pingora_http::RequestHeader;
use upstreams::fields::FieldRules;

use crate::facts::{Facts, Surface};
use crate::identity::IdentityTokens;
use crate::telemetry::client_span;
use contract::rejection::Rejection;
use listener::Connection;
use upstreams::{Endpoint, IdentityForm, Upstream};

const USUAL: &FieldRules = &FieldRules::USUAL;

/// Names of the fields that the gateway adds, parsed once; in lower case, as HTTP/2 requires.
mod name {
    use http::HeaderName;

    pub(super) static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
    pub(super) static FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
    pub(super) static FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
    pub(super) static FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
    pub(super) static FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
    pub(super) static REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
    pub(super) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
    pub(super) static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
    pub(super) static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
    pub(super) static BAGGAGE: HeaderName = HeaderName::from_static("baggage");
    pub(super) static KEY_ID: HeaderName = HeaderName::from_static("x-tollhouse-key-id");
    pub(super) static PROJECT: HeaderName = HeaderName::from_static("x-tollhouse-project");
    pub(super) static PLAN: HeaderName = HeaderName::from_static("x-tollhouse-plan");
    pub(super) static IDENTITY_TOKEN: HeaderName = HeaderName::from_static(contract::token::IDENTITY_TOKEN_HEADER);
}

/// Rewrites the head for the upstream: removes fields that a client may not set, and adds those of the gateway. A
/// `Connection` header cannot remove the added ones: [`crate::exchange`] later drops a fixed list of names only.
///
/// The head is rebuilt without pingora's second map of names in their original spelling, so names reach an upstream in
/// lower case.
///
/// # Errors
/// If a value of the gateway is not a valid field value: a programming mistake.
pub(crate) fn rewrite(
    head: &mut RequestHeader,
    facts: &Facts,
    connection: &Connection,
    identity_tokens: &IdentityTokens,
) -> pingora::Result<()> {
    let mut parts = http::request::Parts::from(take_out(head)?);
    let rewritten = rewrite_fields(&mut parts, facts, connection, identity_tokens);
    *head = RequestHeader::from(parts);
    rewritten.or_err(ErrorType::InternalError, "invalid value of an added field")
}

/// Takes the head without a copy, and leaves an empty one.
///
/// # Errors
/// Never, unless the library refuses an empty head.
pub(crate) fn take_out(head: &mut RequestHeader) -> pingora::Result<RequestHeader> {
    let empty = RequestHeader::build_no_case("GET", b"/", Some(0))?;
    Ok(std::mem::replace(head, empty))
}

fn rewrite_fields(
    parts: &mut http::request::Parts,
    facts: &Facts,
    connection: &Connection,
    identity_tokens: &IdentityTokens,
) -> Result<(), InvalidHeaderValue> {
    let headers = &mut parts.headers;
    let rules = facts.upstream.forwarded_to().map_or(USUAL, |upstream| &upstream.settings.fields);
    // A preflight has no key, so no field may change its method.
    let is_dropped = |name: &str| rules.removes(name) || facts.caller.is_preflight && is_method_override(name);
    let dropped: Vec<HeaderName> = headers.keys().filter(|name| is_dropped(name.as_str())).cloned().collect();
    for name in dropped {
        headers.remove(name);
    }
    // The gateway has answered it.
    headers.remove(header::EXPECT);
    // Only the control plane gets the key, because it looks the key up itself. The Authorization of a public site
    // belongs to the application.
    if facts.surface == Surface::Api {
        let takes_keys = facts.upstream.forwarded_to().is_some_and(|upstream| upstream.settings.takes_keys);
        if !takes_keys {
            headers.remove(header::AUTHORIZATION);
        } else if let Some(presented) = headers.get_mut(header::AUTHORIZATION) {
            // Not printed, and not indexed by HTTP/2.
            presented.set_sensitive(true);
        }
    }
    join_cookies(headers)?;
    add_via(headers, parts.version, rules);
    decrement_max_forwards(&parts.method, headers);
    add_forwarded(headers, facts, connection)?;
    set_trace(headers, facts)?;
    headers.insert(name::REQUEST_ID.clone(), HeaderValue::from_str(facts.request_id.as_str())?);
    add_identity(parts, facts, identity_tokens, facts.client(connection))
}

/// RFC 9110 section 7.6.3: appends the gateway to `Via`. The settings of an upstream may drop the field: nginx, for
/// example, compresses no response to a request with `Via`.
fn add_via(headers: &mut http::HeaderMap, version: Version, rules: &FieldRules) {
    if rules.drops(header::VIA.as_str()) {
        return;
    }
    let ours = match version {
        Version::HTTP_2 => HeaderValue::from_static("2.0 tollhouse"),
        Version::HTTP_10 => HeaderValue::from_static("1.0 tollhouse"),
        _ => HeaderValue::from_static("1.1 tollhouse"),
    };
    headers.append(header::VIA, ours);
}

/// RFC 9110 section 7.6.2. Requests with 0 were answered before.
fn decrement_max_forwards(method: &http::Method, headers: &mut http::HeaderMap) {
    if *method != http::Method::OPTIONS {
        return;
    }
    if let Some(hops) = hops_left(headers) {
        headers.insert(header::MAX_FORWARDS, HeaderValue::from(hops.saturating_sub(1)));
    }
}

/// The number of further hops that `Max-Forwards` allows, if present.
pub(crate) fn hops_left(headers: &http::HeaderMap) -> Option<u32> {
    headers.get(header::MAX_FORWARDS)?.to_str().ok()?.parse().ok()
}

/// Adds the client's address, and the protocol, host and port that it used, as applications behind a proxy expect them.
/// The gateway removes no path prefix, so `X-Forwarded-Prefix` is the root.
fn add_forwarded(
    headers: &mut http::HeaderMap,
    facts: &Facts,
    connection: &Connection,
) -> Result<(), InvalidHeaderValue> {
    let (proto, usual, usual_text) = if connection.is_tls() { ("https", 443, "443") } else { ("http", 80, "80") };
    headers.insert(name::FORWARDED_FOR.clone(), facts.client_text(connection).clone());
    headers.insert(name::REAL_IP.clone(), facts.client_text(connection).clone());
    headers.insert(name::FORWARDED_PROTO.clone(), HeaderValue::from_static(proto));
    headers.insert(name::FORWARDED_PREFIX.clone(), HeaderValue::from_static("/"));
    let port = facts.port.filter(|port| *port != usual);
    let port_text = port.map_or(HeaderValue::from_static(usual_text), HeaderValue::from);
    headers.insert(name::FORWARDED_PORT.clone(), port_text);
    if let Some(host) = &facts.host {
        let host = match port {
            None => HeaderValue::from_str(host.as_str())?,
            Some(port) => HeaderValue::try_from(format!("{host}:{port}"))?,
        };
        headers.insert(name::FORWARDED_HOST.clone(), host.clone());
        let configured = facts.upstream.forwarded_to().and_then(|upstream| upstream.settings.host.clone());
        headers.insert(header::HOST, configured.unwrap_or(host));
    }
    Ok(())
}

/// Sets the trace of the request: the gateway's own if it is sampled, else that of a site's visitor. Trace fields of
/// API callers are removed. If the trace is not sampled, no `traceparent` is added, so services do not record it
/// either.
fn set_trace(headers: &mut http::HeaderMap, facts: &Facts) -> Result<(), InvalidHeaderValue> {
    let is_api = facts.surface == Surface::Api;
    if is_api {
        headers.remove(&name::BAGGAGE);
    }
    if facts.sampled || is_api {
        headers.remove(&name::TRACEPARENT);
        headers.remove(&name::TRACESTATE);
    }
    if facts.sampled {
        let parent = format!("00-{}-{:016x}-01", facts.request_id, client_span(&facts.request_id));
        headers.insert(name::TRACEPARENT.clone(), HeaderValue::try_from(parent)?);
    }
    Ok(())
}

/// HTTP/2 may send each cookie in a field of its own; HTTP/1.1 has one field for all (RFC 9113 section 8.2.3).
fn join_cookies(headers: &mut http::HeaderMap) -> Result<(), InvalidHeaderValue> {
    let cookies: Vec<&[u8]> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1 {
        let all = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))?;
        headers.insert(header::COOKIE, all);
    }
    Ok(())
}

fn add_identity(
    parts: &mut http::request::Parts,
    facts: &Facts,
    identity_tokens: &IdentityTokens,
    client: std::net::IpAddr,
) -> Result<(), InvalidHeaderValue> {
    let caller = facts.caller.key.as_deref().zip(facts.caller.payer.as_deref());
    if let Some((key, payer)) = caller {
        parts.headers.insert(name::KEY_ID.clone(), HeaderValue::from_str(key.id.as_str())?);
        parts.headers.insert(name::PROJECT.clone(), HeaderValue::from_str(key.project.as_str())?);
        parts.headers.insert(name::PLAN.clone(), HeaderValue::from_static(payer.plan.as_str()));
    }
    let Some(upstream) =
        facts.upstream.forwarded_to().filter(|upstream| upstream.settings.identity == IdentityForm::Jwt)
    else {
        return Ok(());
    };
    let now = facts.began_at.to_seconds();
    let identity = || Identity {
        request_id: facts.request_id.as_str().to_owned(),
        client,
        site_project: facts.project.as_ref().map(|project| project.id.clone()),
        caller: caller.map(|(key, payer)| Caller {
            key: key.id.clone(),
            project: key.project.clone(),
            project_uid: key.project_uid.clone(),
            plan: payer.plan,
            scopes: key.scopes.clone(),
            environment: key.environment,
        }),
        issued_at: now,
    };
    if let Some(token) = identity_tokens.token(facts, &upstream.settings.name, now, identity)? {
        parts.headers.insert(name::IDENTITY_TOKEN.clone(), token);
    }
    Ok(())
}

/// The refusal for a failure; `None` if the client is gone.
pub(crate) fn rejection(error: &pingora::Error) -> Option<Rejection> {
    use pingora::ErrorType as Type;
    match (error.etype(), error.esource()) {
        (Type::HTTPStatus(413), _) => Some(Rejection::BodyTooLarge),
        (Type::ReadTimedout, ErrorSource::Downstream) => Some(Rejection::RequestTimeout),
        // The client has left or does not read.
        (_, ErrorSource::Downstream) => None,
        (_, ErrorSource::Upstream) | (Type::ConnectNoRoute | Type::ConnectRefused | Type::ConnectTimedout, _) => {
            Some(of_upstream(error))
        }
        (_, _) => Some(Rejection::InternalError),
    }
}

/// The refusal for a failure of the upstream.
fn of_upstream(error: &pingora::Error) -> Rejection {
    use pingora::ErrorType as Type;
    match error.etype() {
        Type::ConnectTimedout | Type::ReadTimedout | Type::WriteTimedout | Type::TLSHandshakeTimedout => {
            Rejection::UpstreamTimeout
        }
        Type::ConnectRefused | Type::ConnectNoRoute | Type::ConnectError | Type::BindError | Type::SocketError => {
            Rejection::UpstreamUnreachable
        }
        Type::TLSHandshakeFailure => Rejection::UpstreamTls,
        Type::Custom(IDENTITY_REFUSED) => Rejection::IdentityRefused,
        _ => Rejection::UpstreamInvalid,
    }
}

/// The most interim responses (1xx) before the final one, so that a flood of them ends.
const INTERIM_RESPONSES_MAX: u32 = 16;

/// The largest head of a response, in bytes: common clients accept it.
pub(crate) const RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1024;

/// Checks the head of a response before the client gets it: its status, and the bytes of its fields.
///
/// # Errors
/// If there are too many interim responses, the head is too large, or the client did not ask for a switch of protocols.
pub(crate) fn inspect(status: StatusCode, bytes: usize, facts: &mut Facts) -> pingora::Result<()> {
    let wrong = |why: &'static str| Err(pingora::Error::explain(ErrorType::InvalidHTTPHeader, why).into_up());
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return if facts.connection.upgrade { Ok(()) } else { wrong("status 101 without a request for it") };
    }
    if status.is_informational() {
        facts.upstream.interim_responses += 1;
        if facts.upstream.interim_responses > INTERIM_RESPONSES_MAX {
            return wrong("too many interim responses");
        }
    }
    if bytes > RESPONSE_HEAD_BYTES_MAX {
        return wrong("the head of the response is too large");
    }
    Ok(())
}

/// The error type of an upstream that refuses the gateway's identity token.
const IDENTITY_REFUSED: &str = "IdentityRefused";

/// Checks that the upstream accepted the gateway's identity token. The caller is not to blame otherwise: its key is
/// valid.
///
/// # Errors
/// If it was refused.
pub(crate) fn check_identity_accepted(refused: bool) -> pingora::Result<()> {
    if refused {
        let why = "the upstream refused the gateway's identity token";
        return Err(pingora::Error::explain(ErrorType::Custom(IDENTITY_REFUSED), why).into_up());
    }
    Ok(())
}

/// Checks that the whole request has not taken longer than its upstream allows. The clock is read only if there is a
/// limit.
///
/// # Errors
/// If it has, as a timeout of the upstream: the listener times out slow clients.
pub(crate) fn in_time(facts: &Facts, clock: &dyn Clock) -> pingora::Result<()> {
    let granted = facts.upstream.forwarded_to().and_then(|upstream| upstream.settings.total_timeout);
    match granted {
        Some(granted) if clock.monotonic().saturating_sub(facts.began) > granted => {
            Err(pingora::Error::explain(ErrorType::ReadTimedout, "the request as a whole took too long").into_up())
        }
        _ => Ok(()),
    }
}

/// Chooses the address for the next attempt, and records the attempt.
pub(crate) fn choose(
    facts: &mut Facts,
    is_safe: bool,
    now: std::time::Duration,
) -> Option<(Arc<Upstream>, Arc<Endpoint>)> {
    let upstream = facts.upstream.forwarded_to()?.clone();
    let tried = facts.upstream.endpoint.as_ref().map(|endpoint| &endpoint.address);
    let endpoint = upstream.endpoints.choose(tried, is_safe, now)?;
    if facts.upstream.attempts == 0 {
        upstream.retries.earn();
    }
    facts.upstream.attempts += 1;
    facts.upstream.began.get_or_insert(now);
    facts.upstream.endpoint = Some(endpoint.clone());
    Some((upstream, endpoint))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use contract::time::UnixMillis;

    use super::*;
    use crate::request_id::RequestId;

    /// The trace fields for an upstream, of a request with fields of its own: parent, state, baggage.
    fn forwarded(surface: Surface, sampled: bool) -> [Option<String>; 3] {
        let mut facts = Facts::new(RequestId::new(7), UnixMillis(0), Duration::ZERO);
        (facts.surface, facts.sampled) = (surface, sampled);
        let names = [name::TRACEPARENT.clone(), name::TRACESTATE.clone(), name::BAGGAGE.clone()];
        let mut headers: http::HeaderMap =
            names.iter().map(|name| (name.clone(), HeaderValue::from_static("theirs"))).collect();
        set_trace(&mut headers, &facts).unwrap();
        names.map(|name| headers.get(name).map(|value| value.to_str().unwrap().to_owned()))
    }

    #[test]
    fn an_upstream_gets_the_gateways_trace_if_sampled_and_otherwise_the_visitors() {
        let theirs = || Some("theirs".to_owned());
        assert_eq!(forwarded(Surface::Site, false), [theirs(), theirs(), theirs()]);
        assert_eq!(forwarded(Surface::Api, false), [None, None, None]);
        let [parent, state, baggage] = forwarded(Surface::Site, true);
        let is_ours =
            |parent: &String| parent.starts_with("00-00000000000000000000000000000007-") && parent.ends_with("-01");
        assert!(parent.as_ref().is_some_and(is_ours), "{parent:?}");
        assert_eq!((state, baggage), (None, theirs()));
        let [parent, state, baggage] = forwarded(Surface::Api, true);
        assert!(parent.as_ref().is_some_and(is_ours), "{parent:?}");
        assert_eq!((state, baggage), (None, None));
    }
}
