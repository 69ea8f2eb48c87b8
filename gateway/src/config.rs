//! The gateway's settings: text becomes a valid [`Config`]. `config/gateway.toml` documents each setting.

mod overload;
mod quota;
mod upstream;

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use chassis::admin::AdminHost;
use chassis::config::{EffectiveSettings, Listen, Problems, Section, Source};
use chassis::logs::Format;
use chassis::peer::{Peer, ServerTls};
use chassis::seal::SealingSecrets;
use chassis::secret::Secret;
use chassis::trace::TraceConfig;
use contract::key::Environment;

pub(crate) use self::overload::OverloadConfig;
pub(crate) use self::quota::QuotaConfig;
use listener::forwarded::{ForwardedField, Forwarders};
use listener::network::canonical_network;
use upstreams::{ConnectionLimits, UpstreamSettings};

/// The prefix of environment variables that override the file.
pub const ENVIRONMENT_PREFIX: &str = "TOLLHOUSE_GATEWAY";

/// An example of a credential file.
const CREDENTIAL_EXAMPLE: &str = "/run/secrets/gateway-1.key";

/// An example of a secret file.
const SECRET_EXAMPLE: &str = "/run/secrets/tollhouse";

/// The gateway's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Plain HTTP listener.
    pub(crate) http: SocketAddr,
    /// HTTPS listener.
    pub(crate) https: SocketAddr,
    /// Admin listener: health, metrics, status.
    pub(crate) admin: SocketAddr,
    /// The admin listener's TLS certificate; `None`: plain text.
    pub(crate) admin_tls: Option<ServerTls>,
    /// Host names of the admin listener, in addition to addresses and `localhost`.
    pub(crate) admin_hosts: Vec<AdminHost>,
    /// The port of https URLs for clients; `None`: the port of the HTTPS listener.
    pub(crate) public_https_port: Option<u16>,
    /// Peers with a trusted PROXY protocol header; empty: no header is expected.
    pub(crate) trusted_proxies: Vec<ipnet::IpNet>,
    /// Peers that name the client in a field of each request.
    pub(crate) forwarders: Forwarders,
    /// How long clients' connections are used.
    pub(crate) connections: ConnectionLimits,
    /// The deployment whose keys are valid here.
    pub(crate) environment: Environment,
    /// The directory of the replica.
    pub(crate) data_directory: PathBuf,
    /// The gateway's credential for the control plane.
    pub(crate) credential: Secret,
    /// The secrets that seal private keys.
    pub(crate) sealing_secret: SealingSecrets,
    /// Chain and key of the platform's wildcard certificate.
    pub(crate) platform_certificate: Option<(PathBuf, PathBuf)>,
    /// The control plane's internal listener.
    pub(crate) feed: Peer,
    /// Whether to serve a replica that was left with a goodbye, or copied, before the control plane knows this process.
    pub(crate) serve_before_registered: bool,
    /// The settings of quotas.
    pub(crate) quota: QuotaConfig,
    /// The upstreams.
    pub(crate) upstreams: Vec<UpstreamSettings>,
    /// Load shedding before memory runs out.
    pub(crate) overload: OverloadConfig,
    /// Worker threads of the data plane.
    pub(crate) threads: usize,
    /// How long the parts of a shutdown take.
    pub(crate) drain: DrainTimes,
    /// The format of log lines.
    pub log_format: Format,
    /// The log filter.
    pub log_filter: String,
    /// Traces.
    pub(crate) tracing: TraceConfig,
    /// The file to read again when it changes; `None`: no file.
    pub(crate) file: Option<PathBuf>,
    /// Every given setting, as text, for comparison by operators.
    pub effective: EffectiveSettings,
}

impl Config {
    /// Reads every setting.
    pub fn read(source: &Source) -> Result<Self, Problems> {
        let reader = source.reader()?;
        let config = Self::from_root(&reader.root());
        let effective = reader.effective_settings();
        let file = source.file().map(std::path::Path::to_owned);
        reader.finish(config.map(|config| Self { file, effective, ..config }))
    }

    fn from_root(root: &Section<'_>) -> Option<Self> {
        // Every setting is read before any error returns, so that all mistakes are reported together.
        let environment = root.value("environment", Environment::Live);
        let data_directory = root.value("data_directory", PathBuf::from("data/gateway"));
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZeroUsize::get);
        let threads = root.optional_integer("threads", 1..=1_024);
        let listen = root.section("listen");
        let http = listen.value("http", Listen(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 8080))));
        let https = listen.value("https", Listen(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 8443))));
        let admin = listen.value("admin", Listen(SocketAddr::from(([127, 0, 0, 1], 9901))));
        let admin_address = admin.as_ref().map(|admin| admin.0);
        let admin_tls = ServerTls::read_for(&root.section("admin_tls"), "listen.admin", admin_address);
        let admin_hosts = listen.list("admin_hosts");
        let public_https_port = listen.optional_integer("public_https_port", 1..=65_535);
        let trusted_proxies = listen.list::<Network>("trusted_proxies");
        let forwarders = listen.list::<Network>("forwarded_from");
        let connections = connection_limits(&listen, Duration::from_hours(1));
        let forwarded_field = listen.value("forwarded_field", ForwardedField::default());
        let tls = root.section("tls");
        let chain = tls.path("platform_certificate_file");
        let key = tls.path("platform_key_file");
        let platform_certificate = match (chain, key) {
            (Some(Some(chain)), Some(Some(key))) => Some(Some((chain, key))),
            (Some(None), Some(None)) => Some(None),
            (Some(Some(_)), Some(None)) => {
                tls.complain("platform_certificate_file", "set platform_key_file as well");
                None
            }
            (Some(None), Some(Some(_))) => {
                tls.complain("platform_key_file", "set platform_certificate_file as well");
                None
            }
            _ => None,
        };
        let credential = root.required_secret("credential", CREDENTIAL_EXAMPLE, root.secret("credential"));
        let sealing_secret =
            root.required_secret("sealing_secret", SECRET_EXAMPLE, root.sealing_secrets("sealing_secret"));
        let follow = root.section("feed");
        let feed = Peer::read(&follow, "http://127.0.0.1:7003");
        let serve_before_registered = follow.flag("serve_before_registered", false);
        let quota = quota::read(&root.section("quota"));
        let sockets = root.path("sockets_directory");
        let upstreams = upstream::read_all(&root.section("upstreams"), sockets.as_ref().and_then(Option::as_deref));
        let upstreams = sockets.and(upstreams);
        let overload = overload::read(&root.section("overload"));
        let drain = drain_times(&root.section("drain"));
        let log = root.section("log");
        let log_format = log.value("format", Format::Json);
        let log_filter = log.value("filter", "info,pingora_core=warn,pingora_proxy=warn".to_owned());
        let tracing = TraceConfig::read(&root.section("tracing"));
        Some(Self {
            http: http?.0,
            https: https?.0,
            admin: admin?.0,
            admin_tls: admin_tls?,
            admin_hosts: admin_hosts?,
            public_https_port: public_https_port?.and_then(|port| u16::try_from(port).ok()),
            trusted_proxies: trusted_proxies?.into_iter().map(|network| network.0).collect(),
            forwarders: Forwarders {
                networks: forwarders?.into_iter().map(|network| network.0).collect(),
                field: forwarded_field?,
            },
            connections: connections?,
            environment: environment?,
            data_directory: data_directory?,
            credential: credential?,
            sealing_secret: sealing_secret?,
            platform_certificate: platform_certificate?,
            feed: feed?,
            serve_before_registered: serve_before_registered?,
            quota: quota?,
            upstreams: upstreams?,
            overload: overload?,
            threads: threads?.and_then(|threads| usize::try_from(threads).ok()).unwrap_or(cores),
            drain: drain?,
            log_format: log_format?,
            log_filter: log_filter?,
            tracing: tracing?,
            file: None,
            effective: EffectiveSettings::default(),
        })
    }
}

/// How long each part of a shutdown takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrainTimes {
    /// The gateway is not ready, and still accepts connections.
    pub(crate) lame_duck: Duration,
    /// The longest time for requests in progress after that.
    pub(crate) requests: Duration,
    /// WebSockets get a Close frame this long after the lame duck.
    pub(crate) websockets: Duration,
}

fn drain_times(section: &Section<'_>) -> Option<DrainTimes> {
    let seconds = Duration::from_secs;
    let lame_duck = section.duration("lame_duck", seconds(5), seconds(0)..=seconds(300));
    let requests = section.duration("requests", seconds(25), seconds(1)..=seconds(3_600));
    let usual = requests.map_or(seconds(5), |requests| seconds(5).min(requests / 2));
    let websockets = section.duration("websockets", usual, seconds(0)..=seconds(3_600));
    let (lame_duck, requests, websockets) = (lame_duck?, requests?, websockets?);
    if websockets >= requests {
        section.complain("websockets", "use less than drain.requests: the drain ends then");
        return None;
    }
    Some(DrainTimes { lame_duck, requests, websockets })
}

/// How long the connections of a listener or an upstream are used.
fn connection_limits(section: &Section<'_>, age: Duration) -> Option<ConnectionLimits> {
    let age = section.duration("connection_age", age, Duration::from_millis(100)..=Duration::from_hours(24));
    let requests = section.integer("requests_per_connection", 1_000_000, 1..=u64::from(u32::MAX));
    Some(ConnectionLimits { age: age?, requests: u32::try_from(requests?).ok()? })
}

/// A network in CIDR notation, with our own error message.
struct Network(ipnet::IpNet);

#[derive(Debug, thiserror::Error)]
#[error("use a network such as 10.0.0.0/8 or fd00::/8")]
struct InvalidNetwork;

impl std::str::FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        text.parse().map(|network| Self(canonical_network(network))).map_err(|_| InvalidNetwork)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn admin(text: &str) -> Result<SocketAddr, String> {
        let text = format!("credential = \"{SECRET}\"\nsealing_secret = \"{SECRET}\"\n{text}");
        let read = Config::read(&Source::from_text("test", &text, "TEST", BTreeMap::new()));
        read.map(|config| config.admin).map_err(|problems| problems.to_string())
    }

    const SECRET: &str = "a secret of these tests";

    #[test]
    fn operators_passes_are_sent_without_tls_only_on_loopback_or_where_the_settings_allow_it() {
        for here in ["", "[listen]\nadmin = \"127.0.0.9:9901\"", "[listen]\nadmin = \"[::1]:9901\""] {
            assert!(admin(here).is_ok(), "{here}");
        }
        for away in ["10.0.0.1:9901", "[::]:9901", "0.0.0.0:9901"] {
            let refused = admin(&format!("[listen]\nadmin = \"{away}\"")).unwrap_err();
            for words in ["admin_tls.certificate_file", "listen.admin is sent credentials and is not on loopback"] {
                assert!(refused.contains(words), "{refused}");
            }
            assert!(admin(&format!("[listen]\nadmin = \"{away}\"\n[admin_tls]\nplain_text = true")).is_ok(), "{away}");
        }
    }

    // rule: 8.5
    // promise: orders.5
    #[test]
    fn the_shipped_limits_leave_a_list_of_all_orders_its_time() {
        let environment = ["CREDENTIAL", "SEALING_SECRET"].map(|name| (format!("TEST_{name}"), SECRET.to_owned()));
        let text = include_str!("../../config/gateway.toml");
        let config = Config::read(&Source::from_text("file", text, "TEST", BTreeMap::from(environment))).unwrap();
        let orders = config.upstreams.iter().find(|upstream| upstream.name.as_str() == "orders").unwrap();
        // A million orders over a line of two megabits per second, without compression.
        let (bytes, bytes_per_second) = (90_000_000, 2_000_000 / 8);
        let needed = Duration::from_secs(bytes / bytes_per_second);
        assert!(orders.total_timeout.is_none_or(|granted| granted > needed), "{:?}", orders.total_timeout);
    }
}
