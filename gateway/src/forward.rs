//! Reaching an upstream: which address, how long to wait, what the request carries, and what may be tried again.

use std::sync::Arc;

use contract::identity::{Caller, IDENTITY_HEADER, Identity, IdentityKey};
use contract::time::UnixSeconds;
use http::header::{self, HeaderName};
use pingora::http::RequestHeader;
use pingora::upstreams::peer::{HttpPeer, HttpUpstreamRequestPolicy};

use crate::facts::Facts;
use crate::rejection::Rejection;
use crate::telemetry::client_span;
use crate::upstreams::{Endpoint, Upstream};

/// Idle connections to upstreams are kept this long: shorter than services keep theirs, so that a request is not sent
/// into a connection that is being closed.
const IDLE_MAX: std::time::Duration = std::time::Duration::from_secs(55);

/// A WebSocket may be silent this long.
const UPGRADED_IDLE_MAX: std::time::Duration = std::time::Duration::from_hours(1);

/// Headers with which a client could pretend to be the gateway or somebody else. They never reach an upstream as sent.
const FORGED: &[&str] = &[
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "x-original-url",
    "x-original-host",
    "x-rewrite-url",
    "x-http-method-override",
    "x-request-id",
    "traceparent",
    "tracestate",
    "baggage",
    "expect",
];

/// Beginnings of header names that are the gateway's own.
const FORGED_PREFIXES: &[&str] = &[
    "x-forwarded-",
    "tollhouse-",
    "x-tollhouse-",
    "x-tenant-",
    "x-project-",
    "x-plan",
    "x-key-",
    "x-account-",
    "x-user-",
    "x-auth-",
];

/// The peer for the next attempt.
pub fn peer(upstream: &Upstream, endpoint: &Endpoint, upgrade: bool) -> HttpPeer {
    let mut peer = HttpPeer::new(endpoint.address, false, String::new());
    let settings = &upstream.settings;
    let options = &mut peer.options;
    options.connection_timeout = Some(settings.connect_timeout);
    options.total_connection_timeout = Some(settings.connect_timeout);
    let patience = if upgrade { UPGRADED_IDLE_MAX } else { settings.first_byte_timeout };
    options.read_timeout = Some(patience);
    options.write_timeout = Some(patience);
    options.idle_timeout = Some(IDLE_MAX);
    if !upgrade {
        // An upstream that is never asked to switch protocols has no reason to.
        options.http_upstream_request_policy = HttpUpstreamRequestPolicy::deny_upgrades();
    }
    peer
}

/// Rewrites the head for the upstream: what a client may not say is gone, what the gateway vouches for is added. Runs
/// after pingora removed the hop-by-hop headers, so a `Connection` header cannot strip what is added here.
///
/// # Errors
/// Only if a value of ours is no header value.
pub fn rewrite(
    head: &mut RequestHeader,
    facts: &Facts,
    key: &IdentityKey,
    now: UnixSeconds,
    is_tls: bool,
) -> pingora::Result<()> {
    let forged: Vec<HeaderName> = head
        .headers
        .keys()
        .filter(|name| {
            let name = name.as_str();
            FORGED.contains(&name) || FORGED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        })
        .cloned()
        .collect();
    for name in &forged {
        head.remove_header(name);
    }
    // The key has done its work. A public site's own Authorization belongs to the application behind it.
    if facts.key.is_some() {
        head.remove_header(&header::AUTHORIZATION);
    }
    // An absolute target stands as it was sent beside the path that was routed on: the upstream gets the path.
    if let Some(target) = head.uri.path_and_query().map(|target| target.as_str().to_owned())
        && head.raw_path() != target.as_bytes()
    {
        head.set_raw_path(target.as_bytes())?;
    }
    let Some(client) = facts.client else { return Ok(()) };
    head.insert_header("x-forwarded-for", client.ip().to_string())?;
    head.insert_header("x-forwarded-proto", if is_tls { "https" } else { "http" })?;
    if let Some(host) = &facts.host {
        head.insert_header("x-forwarded-host", host.as_str())?;
        head.insert_header(header::HOST, host.as_str())?;
    }
    head.insert_header("x-request-id", facts.request_id.as_str())?;
    let (span, flags) = (client_span(&facts.request_id), u8::from(facts.sampled));
    head.insert_header("traceparent", format!("00-{}-{span:016x}-{flags:02x}", facts.request_id))?;
    identify(head, facts, key, client.ip(), now)
}

fn identify(
    head: &mut RequestHeader,
    facts: &Facts,
    key: &IdentityKey,
    client: std::net::IpAddr,
    now: UnixSeconds,
) -> pingora::Result<()> {
    let caller = facts.key.as_deref().zip(facts.payer.as_deref()).map(|(key, payer)| Caller {
        key: key.id.clone(),
        project: key.project.clone(),
        plan: payer.plan,
        scopes: key.scopes.clone(),
        environment: key.environment,
    });
    if let Some(caller) = &caller {
        head.insert_header("x-tollhouse-key-id", caller.key.as_str())?;
        head.insert_header("x-tollhouse-project", caller.project.as_str())?;
        head.insert_header("x-tollhouse-plan", caller.plan.as_str())?;
    }
    let identity = Identity {
        request_id: facts.request_id.as_str().to_owned(),
        client,
        site_project: facts.project.as_ref().map(|project| project.id.clone()),
        caller,
        issued_at: now,
    };
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let signed = key.sign(&identity, head.method.as_str(), &target);
    head.insert_header(IDENTITY_HEADER, signed)?;
    Ok(())
}

/// What a failure on the way is called.
pub fn explain(error: &pingora::Error) -> Rejection {
    use pingora::ErrorType as Type;
    match error.etype() {
        Type::ConnectTimedout | Type::ReadTimedout | Type::WriteTimedout | Type::TLSHandshakeTimedout => {
            Rejection::UpstreamTimeout
        }
        Type::ConnectRefused | Type::ConnectNoRoute | Type::ConnectError | Type::BindError | Type::SocketError => {
            Rejection::UpstreamUnreachable
        }
        _ => Rejection::UpstreamInvalid,
    }
}

/// Chooses the address for the next attempt and remembers it.
pub fn choose(facts: &mut Facts, now: std::time::Duration) -> Option<(Arc<Upstream>, Arc<Endpoint>)> {
    let upstream = facts.upstream()?.clone();
    let tried = facts.endpoint.as_ref().map(|endpoint| endpoint.address);
    let endpoint = upstream.endpoints.choose(tried, now)?;
    facts.attempts += 1;
    facts.upstream_began.get_or_insert(now);
    facts.endpoint = Some(endpoint.clone());
    Some((upstream, endpoint))
}
