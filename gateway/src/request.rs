//! The client's request, parsed once into trusted types.
//!
//! After [`EdgeRequest::parse`] no code lower-cases a host, strips a port or splits a path again. HTTP/1 requests have
//! passed the listener's checks; HTTP/2 requests are checked here by the same rules.

use std::net::IpAddr;

use contract::hostname::Hostname;
use http::uri::Authority;
use http::{HeaderMap, Method, header};
use pingora_http::RequestHeader;

use contract::rejection::Rejection;
use listener::Connection;
use listener::head::{self, HeadLimits};
use upstreams::AnnouncedBody;

/// One request, as the pipeline sees it.
#[derive(Debug)]
pub(crate) struct EdgeRequest<'a> {
    /// The method.
    pub method: &'a Method,
    /// The host the request is for, canonical.
    pub host: Hostname,
    /// The port of the host, if present.
    pub port: Option<u16>,
    /// The path exactly as sent.
    pub path: &'a str,
    /// Path and query exactly as sent, always starting with `/` (or `*` for OPTIONS).
    pub target: &'a str,
    /// All headers.
    pub headers: &'a HeaderMap,
    /// The announced body.
    pub body: AnnouncedBody,
    /// The client's address.
    pub client: IpAddr,
    /// Whether the connection is encrypted.
    pub is_tls: bool,
    /// The hostname of the TLS handshake.
    pub sni: Option<&'a Hostname>,
    /// Whether the client requests an upgrade to WebSocket.
    pub wants_upgrade: bool,
    /// Whether it does so by CONNECT (RFC 8441), so that an ordinary response is impossible.
    pub is_tunnel: bool,
}

impl<'a> EdgeRequest<'a> {
    /// Parses a request from its head.
    pub(crate) fn parse(
        header: &'a RequestHeader,
        body_follows: bool,
        connection: &'a Connection,
    ) -> Result<Self, Rejection> {
        if connection.is_h2() {
            check_authority(header.uri.authority(), &header.headers)?;
            head::judge(header, body_follows, &HeadLimits::default())?;
        }
        let (host, port) = host_of(header)?;
        let target = header.uri.path_and_query().map_or("/", |target| target.as_str());
        let is_tunnel = asks_for_tunnel(header);
        Ok(Self {
            method: &header.method,
            host,
            port,
            path: header.uri.path(),
            target,
            headers: &header.headers,
            body: body_of(&header.headers, body_follows)?,
            client: connection.client().ip(),
            is_tls: connection.is_tls(),
            sni: connection.sni(),
            wants_upgrade: is_tunnel || wants_websocket(header),
            is_tunnel,
        })
    }

    /// Whether the method only reads, so that a redirect may change it to GET.
    pub(crate) fn is_read(&self) -> bool {
        matches!(*self.method, Method::GET | Method::HEAD)
    }

    /// The client's own request id for the log, if valid: 16 to 64 characters of `A-Z a-z 0-9 _ -`.
    pub(crate) fn client_request_id(&self) -> Option<String> {
        let id = self.single(header::HeaderName::from_static("x-request-id"))?;
        let fits = (16..=64).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        fits.then(|| id.to_owned())
    }

    /// The value of a header that must not repeat; `None` if absent or repeated.
    pub(crate) fn single(&self, name: header::HeaderName) -> Option<&'a str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?;
        if values.next().is_some() { None } else { value.to_str().ok() }
    }
}

/// RFC 9113 section 8.3.1: `Host` must equal `:authority` if both exist. It occurs once, as everywhere (RFC 9112
/// section 3.2).
fn check_authority(authority: Option<&Authority>, headers: &HeaderMap) -> Result<(), Rejection> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, another) = (hosts.next(), hosts.next());
    let differs = host.zip(authority).is_some_and(|(host, authority)| host.as_bytes() != authority.as_str().as_bytes());
    if another.is_some() || differs { Err(Rejection::BadHost) } else { Ok(()) }
}

/// HTTP/2 has the host in `:authority`, HTTP/1 in `Host`. If both exist they are equal, and the port is a number: both
/// were checked before.
fn host_of(header: &RequestHeader) -> Result<(Hostname, Option<u16>), Rejection> {
    let authority = match header.uri.authority() {
        Some(authority) => authority.as_str(),
        None => header.headers.get(header::HOST).and_then(|host| host.to_str().ok()).ok_or(Rejection::BadHost)?,
    };
    let (name, port) = match authority.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') => (name, Some(port.parse().map_err(|_| Rejection::BadHost)?)),
        _ => (authority, None),
    };
    let host = Hostname::from_ascii(name).map_err(|_| Rejection::BadHost)?;
    Ok((host, port))
}

/// The exchange has made a GET of a CONNECT for a WebSocket; its `:protocol` is still there.
fn asks_for_tunnel(header: &RequestHeader) -> bool {
    header.method == Method::GET && header.extensions.get::<h2::ext::Protocol>().is_some()
}

/// RFC 6455 section 4.1: the only supported upgrade. Other values of `Upgrade` are ignored, as a server may.
fn wants_websocket(header: &RequestHeader) -> bool {
    let lists = |name, wanted: &str| {
        let values = header.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(wanted))
    };
    header.version == http::Version::HTTP_11
        && header.method == Method::GET
        && lists(header::UPGRADE, "websocket")
        && lists(header::CONNECTION, "upgrade")
}

fn body_of(headers: &HeaderMap, body_follows: bool) -> Result<AnnouncedBody, Rejection> {
    match headers.get(header::CONTENT_LENGTH) {
        Some(length) => {
            let length = length.to_str().ok().and_then(|length| length.parse().ok());
            match length.ok_or(Rejection::BadFraming)? {
                0 => Ok(AnnouncedBody::None),
                // An upstream would wait for this body in the next request.
                _ if !body_follows => Err(Rejection::BadFraming),
                length => Ok(AnnouncedBody::Length(length)),
            }
        }
        None if body_follows => Ok(AnnouncedBody::Unknown),
        None => Ok(AnnouncedBody::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Result<String, Rejection> {
        let mut header = RequestHeader::build("GET", b"/", None).unwrap();
        header.insert_header("host", text).unwrap();
        host_of(&header).map(|(host, port)| port.map_or(host.to_string(), |port| format!("{host} {port}")))
    }

    #[test]
    fn the_host_is_canonical_whatever_its_spelling() {
        assert_eq!(host("Demo.Tollhouse.LOCALHOST.:8443").unwrap(), "demo.tollhouse.localhost 8443");
        assert_eq!(host("demo.tollhouse.localhost").unwrap(), "demo.tollhouse.localhost");
    }

    #[test]
    fn a_host_that_is_not_a_single_name_is_refused() {
        for bad in
            ["", "a.example:", "a.example:65536", "a.example:8x", "a,b", "a/b", "[::1]", "127.0.0.1", "a b", "user@a"]
        {
            assert_eq!(host(bad), Err(Rejection::BadHost), "{bad:?}");
        }
    }
}
