//! `[upstreams.NAME]`: the address, timeouts and routes of an upstream.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use chassis::config::Section;
use chassis::peer::TlsName;
use chassis::secret::read_regular;
use contract::project::UpstreamName;
use http::uri::Authority;
use http::{HeaderValue, Method};

use upstreams::ErrorPage;
use upstreams::fields::{FieldRules, Underscores};
use upstreams::{
    Cors, EndpointUrl, HealthCheck, HostPort, Hsts, IdentityForm, KeyPin, Origin, Question, Route, Scheme, Tls,
    TlsSettings, Transport, UpstreamSettings, WebSocketLimits,
};

/// The platform's own services, which accept requests only with an identity.
const OWN_SERVICES: [&str; 3] = ["orders", "domains", "dashboard"];

/// The control plane's upstreams, which look up API keys themselves: requests to them carry the key, in `Authorization`
/// and in the sign-in form.
const TAKE_KEYS: [&str; 2] = ["domains", "dashboard"];

/// The default limit of the request body of an API route with a body.
const ROUTE_BODY_BYTES: u64 = 64 * 1024;

/// The limit of the request body of an upstream without routes: a site with uploads.
const OPEN_BODY_BYTES: u64 = 100 * 1024 * 1024;

/// Reads all upstreams; `sockets` is the directory of their Unix sockets.
pub(super) fn read_all(section: &Section<'_>, sockets: Option<&Path>) -> Option<Vec<UpstreamSettings>> {
    let upstreams: Vec<_> = section.table_names().iter().map(|name| read(section, name, sockets)).collect();
    upstreams.into_iter().collect()
}

fn read(section: &Section<'_>, name: &str, sockets: Option<&Path>) -> Option<UpstreamSettings> {
    let one = section.section(name);
    let parsed: Option<UpstreamName> = match name.parse() {
        Ok(name) => Some(name),
        Err(error) => {
            section.complain(name, format!("not an upstream's name: {error}"));
            None
        }
    };
    let endpoints: Option<Vec<EndpointUrl>> = one.list("endpoints");
    if endpoints.as_ref().is_some_and(Vec::is_empty) {
        one.missing("endpoints", "[\"127.0.0.1:7001\"]");
    }
    let transport = transport(&one, endpoints.as_deref());
    let takes_keys = TAKE_KEYS.contains(&name);
    let usual = if OWN_SERVICES.contains(&name) { IdentityForm::Jwt } else { IdentityForm::None };
    let identity = one.value("identity", usual);
    let sent = match identity {
        _ if takes_keys => Some("API keys"),
        Some(IdentityForm::Jwt) => Some("identity tokens"),
        _ => None,
    };
    let is_private = sent.is_none_or(|sent| stays_private(&one, sent, transport.as_ref(), endpoints.as_deref()));
    let host = host(&one);
    let routes: Vec<_> = one.tables("routes").iter().map(route).collect();
    let routes: Option<Vec<Route>> = routes.into_iter().collect();
    let millis = Duration::from_millis;
    let connect = one.duration("connect_timeout", Duration::from_secs(1), millis(10)..=Duration::from_mins(1));
    let default_patience =
        if routes.as_ref().is_some_and(Vec::is_empty) { Duration::from_mins(1) } else { Duration::from_secs(10) };
    let first_byte = one.duration("first_byte_timeout", default_patience, millis(50)..=Duration::from_hours(1));
    // A site may accept uploads and stream for hours; an API operation has an end.
    let is_open = routes.as_ref().is_some_and(Vec::is_empty);
    let total = if is_open && !one.has("total_timeout") {
        Some(None)
    } else {
        let range = millis(100)..=Duration::from_hours(24);
        one.duration("total_timeout", Duration::from_secs(30), range).map(Some)
    };
    let in_flight = one.integer("in_flight_max", 256, 1..=1_000_000);
    let websockets = websockets(&one);
    let connections = super::connection_limits(&one, Duration::from_mins(10));
    let shared = one.flag("shared_connections", false);
    let grpc_web = grpc_web(&one, transport.as_ref());
    let has_socket = endpoints.as_ref().is_some_and(|all| all.iter().any(|one| one.host_port.is_socket()));
    let health = if one.has("health") { health(&one.section("health"), has_socket).map(Some) } else { Some(None) };
    let body = one.integer("body_bytes_max", OPEN_BODY_BYTES, 0..=1 << 40);
    let (pass, drop) = (one.list("pass_headers"), one.list("drop_headers"));
    let underscores = one.value("underscores", Underscores::default());
    let cors = if one.is_list("cors") {
        one.list::<Origin>("cors").map(Cors::Origins)
    } else {
        one.value("cors", Cors::default())
    };
    let hsts = one.value("hsts", Hsts::default());
    let error_page = error_page(&one);
    let endpoints = host_ports(&one, endpoints, sockets);
    let routes = routes.filter(|_| is_private)?;
    Some(UpstreamSettings {
        name: parsed?,
        endpoints: endpoints?,
        transport: transport?,
        host: host?,
        connect_timeout: connect?,
        first_byte_timeout: first_byte?,
        total_timeout: total?,
        in_flight_max: u32::try_from(in_flight?).ok()?,
        websockets: websockets?,
        connections: connections?,
        shared_connections: shared?,
        grpc_web: grpc_web?,
        body_bytes_max: body?,
        health: health?,
        identity: identity?,
        takes_keys,
        fields: FieldRules { pass: pass?, drop: drop?, guards_methods: !routes.is_empty(), underscores: underscores? },
        cors: cors?,
        hsts: hsts?,
        error_page: error_page?,
        routes,
    })
}

/// The endpoints with the directory of Unix sockets.
fn host_ports(
    section: &Section<'_>,
    endpoints: Option<Vec<EndpointUrl>>,
    sockets: Option<&Path>,
) -> Option<Vec<HostPort>> {
    let all: Result<Vec<_>, _> = endpoints?.into_iter().map(|endpoint| endpoint.within(sockets)).collect();
    all.map_err(|why| section.complain("endpoints", why)).ok()
}

/// Whether data sent there stays private: TLS, loopback, or an operator's permission.
fn stays_private(
    section: &Section<'_>,
    sent: &str,
    transport: Option<&Transport>,
    endpoints: Option<&[EndpointUrl]>,
) -> bool {
    let Some(plain_text) = section.flag("plain_text", false) else { return false };
    let is_plain = matches!(transport, Some(Transport::Plain | Transport::PlainHttp2));
    let is_here = endpoints.is_some_and(|all| all.iter().all(|endpoint| endpoint.host_port.is_loopback()));
    if is_plain && !plain_text && !is_here {
        section.complain(
            "endpoints",
            format!(
                "{sent} would be sent there as plain text: use https:// and tls.ca_certificate_file, or set \
                 plain_text = true if the network path is private"
            ),
        );
        return false;
    }
    true
}

fn websockets(section: &Section<'_>) -> Option<WebSocketLimits> {
    let max = section.integer("websockets_max", 1_024, 1..=1_000_000);
    let idle_timeouts = Duration::from_secs(1)..=Duration::from_hours(24);
    let idle_timeout = section.duration("websocket_idle_timeout", Duration::from_hours(1), idle_timeouts);
    Some(WebSocketLimits { max: u32::try_from(max?).ok()?, idle_timeout: idle_timeout? })
}

/// Whether gRPC-Web is translated: the upstream must speak HTTP/2.
fn grpc_web(section: &Section<'_>, transport: Option<&Transport>) -> Option<bool> {
    let translates = section.flag("grpc_web", false)?;
    if translates && matches!(transport, Some(Transport::Plain)) {
        section.complain("grpc_web", "use h2c:// or https:// endpoints: gRPC needs HTTP/2");
        return None;
    }
    Some(translates)
}

/// The most bytes of a page file that are read; above the limit for pages, so that the error can name that limit.
const ERROR_PAGE_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The page that visitors see instead of the gateway's.
fn error_page(section: &Section<'_>) -> Option<Option<ErrorPage>> {
    if !section.has("error_page_file") {
        return Some(None);
    }
    let file: PathBuf = section.required("error_page_file", "\"data/error.html\"")?;
    let read = read_regular(&file, ERROR_PAGE_FILE_BYTES_MAX);
    let read = read.map_err(|error| format!("{} cannot be read: {error}", file.display()));
    match read.and_then(|(bytes, _)| ErrorPage::try_from(bytes.to_vec()).map_err(|error| error.to_string())) {
        Ok(page) => Some(Some(page)),
        Err(why) => {
            section.complain("error_page_file", why);
            None
        }
    }
}

/// The transport to the upstream: the same for all of its endpoints.
fn transport(section: &Section<'_>, endpoints: Option<&[EndpointUrl]>) -> Option<Transport> {
    let tls = section.section("tls");
    let settings = tls_settings(&tls);
    let scheme = endpoints?.first()?.scheme;
    if endpoints?.iter().any(|endpoint| endpoint.scheme != scheme) {
        section.complain("endpoints", "use one scheme for all endpoints of an upstream");
        return None;
    }
    if scheme != Scheme::Https && section.has("tls") {
        section.complain("endpoints", "use https://: this upstream has [tls] settings");
        return None;
    }
    let settings = settings?;
    match scheme {
        Scheme::Http => Some(Transport::Plain),
        Scheme::H2c => Some(Transport::PlainHttp2),
        Scheme::Https => match Tls::load(settings) {
            Ok(tls) => Some(Transport::Tls(Arc::new(tls))),
            Err(error) => {
                section.complain("tls", format!("cannot use it: {error:#}"));
                None
            }
        },
    }
}

/// The most public keys of an upstream: those in use, and others to change to.
const KEY_PINS_MAX: usize = 8;

fn tls_settings(section: &Section<'_>) -> Option<TlsSettings> {
    let server_name = section.optional::<TlsName>("server_name");
    let authority = section.path("ca_certificate_file");
    let pins: Option<Vec<KeyPin>> = section.list("public_key_sha256");
    let (chain, key) = (section.path("client_certificate_file"), section.path("client_key_file"));
    let http2 = section.flag("http2", true);
    let insecure = section.flag("insecure", false);
    let client = match (chain?, key?) {
        (Some(chain), Some(key)) => Some((chain, key)),
        (None, None) => None,
        (Some(_), None) => {
            section.missing("client_key_file", "\"data/tls/edge.key\"");
            return None;
        }
        (None, Some(_)) => {
            section.missing("client_certificate_file", "\"data/tls/edge.pem\"");
            return None;
        }
    };
    let (authority, pins, insecure) = (authority?, pins?, insecure?);
    let pinned = section.has("public_key_sha256");
    if insecure && (authority.is_some() || pinned) {
        let other = if pinned { "public_key_sha256" } else { "ca_certificate_file" };
        section.complain("insecure", format!("remove it: {other} is set, so the certificate is verified"));
        return None;
    }
    if pinned && authority.is_some() {
        section.complain("ca_certificate_file", "remove it: public_key_sha256 is set, so no authority is trusted");
        return None;
    }
    if pinned && !(1..=KEY_PINS_MAX).contains(&pins.len()) {
        section.complain("public_key_sha256", format!("use 1 to {KEY_PINS_MAX} keys, or remove it"));
        return None;
    }
    let server_name = server_name?.map(|name| name.0);
    Some(TlsSettings { server_name, authority, pins, client, http2: http2?, insecure })
}

/// The Host sent to the upstream, if it differs from the visitor's.
fn host(section: &Section<'_>) -> Option<Option<HeaderValue>> {
    let host = section.optional::<Authority>("host")?;
    let value = host.as_ref().map(|host| HeaderValue::from_str(host.as_str()));
    if host.is_some_and(|host| host.as_str().contains('@')) || value.as_ref().is_some_and(Result::is_err) {
        section.complain("host", "use a name, and a port if there is one: shop.internal:8443");
        return None;
    }
    Some(value.and_then(Result::ok))
}

fn health(section: &Section<'_>, has_socket: bool) -> Option<HealthCheck> {
    if has_socket && section.has("port") {
        section.complain("port", "remove it: a Unix socket has no other port");
        return None;
    }
    let question = question(section);
    let millis = Duration::from_millis;
    let port = section.optional_integer("port", 1..=65_535);
    let every = section.duration("every", Duration::from_secs(5), millis(10)..=Duration::from_hours(1));
    let timeout = section.duration("timeout", Duration::from_secs(1), millis(10)..=Duration::from_mins(1));
    let falls = section.integer("falls", 3, 1..=100);
    let rises = section.integer("rises", 2, 1..=100);
    Some(HealthCheck {
        question: question?,
        port: port?.and_then(|port| u16::try_from(port).ok()),
        every: every?,
        timeout: timeout?,
        falls: u32::try_from(falls?).ok()?,
        rises: u32::try_from(rises?).ok()?,
    })
}

/// The health check: a path, or gRPC's health protocol.
fn question(section: &Section<'_>) -> Option<Question> {
    let service: Option<Option<String>> = section.optional("grpc");
    if let Some(service) = service? {
        let is_name = service.len() <= 120 && service.bytes().all(|byte| byte.is_ascii_graphic());
        if section.has("path") || !is_name {
            section.complain("grpc", "use the name of a service, or \"\" for all services, and remove path");
            return None;
        }
        return Some(Question::Grpc(service));
    }
    let path: Option<String> = section.required("path", "\"/readyz\"");
    let is_path = |path: &String| path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
    if path.as_ref().is_some_and(|path| !is_path(path)) {
        section.complain("path", "start it with / and use visible ASCII characters only");
    }
    path.map(Question::Get)
}

fn route(section: &Section<'_>) -> Option<Route> {
    let pattern: Option<String> = section.required("path", "\"/v1/store/orders\"");
    if pattern.as_ref().is_some_and(|pattern| !pattern.starts_with('/')) {
        section.complain("path", "start it with /");
    }
    let methods: Option<Vec<Method>> = section.list("methods");
    if methods.as_ref().is_some_and(Vec::is_empty) {
        section.missing("methods", "[\"GET\"]");
    }
    let body = section.integer("body_bytes_max", ROUTE_BODY_BYTES, 0..=1 << 40);
    let open = section.value("open", false);
    Some(Route { pattern: pattern?, methods: methods?, body_bytes_max: body?, open: open? })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use chassis::config::Source;

    use super::*;

    fn read(text: &str) -> Result<Vec<UpstreamSettings>, String> {
        let source = Source::from_text("test", text, "TEST", BTreeMap::new());
        let reader = source.reader().unwrap();
        let read = read_all(&reader.root().section("upstreams"), None);
        reader.finish(read).map_err(|problems| problems.to_string())
    }

    #[test]
    fn api_keys_are_forwarded_only_to_the_control_plane() {
        let text =
            "[upstreams.domains]\nendpoints = [\"127.0.0.1:1\"]\n[upstreams.orders]\nendpoints = [\"127.0.0.1:1\"]\n";
        let all = read(&format!("{text}[upstreams.dashboard]\nendpoints = [\"localhost:1\"]\n")).unwrap();
        let given: Vec<_> = all.iter().map(|one| (one.name.as_str(), one.takes_keys)).collect();
        for expected in [("domains", true), ("dashboard", true), ("orders", false)] {
            assert!(given.contains(&expected), "{given:?}");
        }
    }

    #[test]
    fn keys_and_identities_are_sent_without_tls_only_on_loopback_or_where_the_settings_allow_it() {
        for (name, identity, what) in [
            ("domains", "", "API keys"),
            ("dashboard", "identity = \"none\"\n", "API keys"),
            ("orders", "", "identity tokens"),
            ("shop", "identity = \"jwt\"\n", "identity tokens"),
        ] {
            let with = |endpoints: &str, more: &str| {
                read(&format!("[upstreams.{name}]\nendpoints = {endpoints}\n{identity}{more}"))
            };
            for here in ["[\"127.0.0.1:1\"]", "[\"http://[::1]:1\", \"http://localhost:1\"]", "[\"https://control:1\"]"]
            {
                assert!(with(here, "").is_ok(), "{name} {here}");
            }
            for away in ["[\"control:1\"]", "[\"127.0.0.1:1\", \"10.0.0.1:1\"]", "[\"h2c://control:1\"]"] {
                let refused = with(away, "").unwrap_err();
                assert!(refused.contains(&format!("{what} would be sent there as plain text")), "{refused}");
                assert!(with(away, "plain_text = true\n").is_ok(), "{name} {away}");
            }
        }
    }

    #[test]
    fn an_upstream_without_keys_and_identities_may_be_at_any_address() {
        for text in ["[upstreams.shop]\n", "[upstreams.orders]\nidentity = \"none\"\n"] {
            let text = format!("{text}endpoints = [\"shop:1\"]\n");
            assert!(read(&text).is_ok(), "{text}");
            let refused = read(&format!("{text}plain_text = true\n")).unwrap_err();
            assert!(refused.contains("plain_text"), "it has no such setting: {refused}");
        }
    }

    #[test]
    fn an_upstream_has_one_to_eight_public_keys() {
        let with = |count| {
            let tls = format!("tls.public_key_sha256 = {:?}\n", vec!["ab".repeat(32); count]);
            read(&format!("[upstreams.shop]\nendpoints = [\"https://shop\"]\n{tls}"))
        };
        assert!(with(8).is_ok());
        for wrong in [0, 9] {
            let refused = with(wrong).unwrap_err();
            assert!(refused.contains("use 1 to 8 keys"), "{refused}");
        }
    }
}
