//! The gateway's settings. Text becomes a [`Config`] whose fields cannot be wrong; `config/gateway.toml` documents each.

mod overload;
mod quota;
mod upstream;

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use chassis::admin::AdminHost;
use chassis::config::{Listen, Problems, Section, Source, Told};
use chassis::logs::Format;
use chassis::peer::{Peer, ServerTls};
use chassis::seal::SealingSecrets;
use chassis::secret::Secret;
use chassis::trace::TraceConfig;
use contract::key::Environment;

pub(crate) use self::overload::OverloadConfig;
pub(crate) use self::quota::QuotaConfig;
use crate::upstreams::UpstreamSettings;
use listener::forwarded::{ForwardedField, Forwarders};
use listener::network::canonical_network;

/// The prefix of environment variables that override the file.
pub const ENVIRONMENT_PREFIX: &str = "TOLLHOUSE_GATEWAY";

/// What the file of a credential might be called.
const CREDENTIAL_EXAMPLE: &str = "/run/secrets/gateway-1.key";

/// What a file of a secret might be called.
const SECRET_EXAMPLE: &str = "/run/secrets/tollhouse";

/// Everything the gateway is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// Plain HTTP listener.
    pub(crate) http: SocketAddr,
    /// HTTPS listener.
    pub(crate) https: SocketAddr,
    /// Admin listener: health, metrics, status.
    pub(crate) admin: SocketAddr,
    /// What the admin listener shows; `None`: it speaks plain text.
    pub(crate) admin_tls: Option<ServerTls>,
    /// Names under which it is asked, beside addresses and `localhost`.
    pub(crate) admin_hosts: Vec<AdminHost>,
    /// The port of https URLs as clients see it; `None`: the port the HTTPS listener is bound to.
    pub(crate) public_https_port: Option<u16>,
    /// Peers whose PROXY protocol header is believed; empty: the header is not expected.
    pub(crate) trusted_proxies: Vec<ipnet::IpNet>,
    /// Peers that name the client in a field of each request.
    pub(crate) forwarders: Forwarders,
    /// Which keys are good here.
    pub(crate) environment: Environment,
    /// Where the replica lives.
    pub(crate) data_directory: PathBuf,
    /// What the gateway proves itself with.
    pub(crate) credential: Secret,
    /// The secret private keys are sealed with.
    pub(crate) sealing_secret: SealingSecrets,
    /// Chain and key of the platform's wildcard certificate.
    pub(crate) platform_certificate: Option<(PathBuf, PathBuf)>,
    /// The control plane's internal listener.
    pub(crate) feed: Peer,
    /// Whether a replica that was left with a goodbye, or copied, is served before the control plane has heard of this process.
    pub(crate) serve_before_heard: bool,
    /// The quota.
    pub(crate) quota: QuotaConfig,
    /// The backends.
    pub(crate) upstreams: Vec<UpstreamSettings>,
    /// What is given up before memory runs out.
    pub(crate) overload: OverloadConfig,
    /// Worker threads of the data plane.
    pub(crate) threads: usize,
    /// After the end is announced: still accepting, but not ready, for this long.
    pub(crate) lame_duck: Duration,
    /// Then requests in progress get this long.
    pub(crate) drain: Duration,
    /// How logs look.
    pub log_format: Format,
    /// What is logged.
    pub log_filter: String,
    /// Traces.
    pub(crate) tracing: TraceConfig,
    /// The file that is read again when it changes; `None`: there is none.
    pub(crate) file: Option<PathBuf>,
    /// Every setting that was given, as text, for operators who compare.
    pub told: Told,
}

impl Config {
    /// Reads every setting.
    pub fn read(source: &Source) -> Result<Self, Problems> {
        let reader = source.reader()?;
        let config = Self::from_root(&reader.root());
        let told = reader.told();
        let file = source.file().map(std::path::Path::to_owned);
        reader.finish(config.map(|config| Self { file, told, ..config }))
    }

    fn from_root(root: &Section<'_>) -> Option<Self> {
        // Everything is read before anything is given up, so that all mistakes are reported together.
        let environment = root.value("environment", Environment::Live);
        let data_directory = root.value("data_directory", PathBuf::from("data/gateway"));
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZeroUsize::get);
        let threads = root.integer("threads", u64::try_from(cores).unwrap_or(2), 1..=1_024);
        let listen = root.section("listen");
        let http = listen.value("http", Listen(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 8080))));
        let https = listen.value("https", Listen(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 8443))));
        let admin = listen.value("admin", Listen(SocketAddr::from(([127, 0, 0, 1], 9901))));
        let admin_address = admin.as_ref().map(|admin| admin.0);
        let admin_tls = ServerTls::read_for(&root.section("admin_tls"), "listen.admin", admin_address);
        let admin_hosts = listen.list("admin_hosts");
        let has_public_https_port = listen.has("public_https_port");
        let public_https_port = listen.integer("public_https_port", 443, 1..=65_535);
        let trusted_proxies = listen.list::<Network>("trusted_proxies");
        let forwarders = listen.list::<Network>("forwarded_from");
        let forwarded_field = listen.value("forwarded_field", ForwardedField::default());
        let tls = root.section("tls");
        let chain = tls.path("platform_certificate_file");
        let key = tls.path("platform_key_file");
        let platform_certificate = match (chain, key) {
            (Some(Some(chain)), Some(Some(key))) => Some(Some((chain, key))),
            (Some(None), Some(None)) => Some(None),
            (Some(Some(_)), Some(None)) => {
                tls.complain("platform_certificate_file", "name the key as well: platform_key_file");
                None
            }
            (Some(None), Some(Some(_))) => {
                tls.complain("platform_key_file", "name the certificate as well: platform_certificate_file");
                None
            }
            _ => None,
        };
        let credential = root.required_secret("credential", CREDENTIAL_EXAMPLE, root.secret("credential"));
        let sealing_secret =
            root.required_secret("sealing_secret", SECRET_EXAMPLE, root.sealing_secrets("sealing_secret"));
        let follow = root.section("feed");
        let feed = Peer::read(&follow, "http://127.0.0.1:7003");
        let serve_before_heard = follow.flag("serve_before_heard", false);
        let quota = quota::read(&root.section("quota"));
        let upstreams = upstream::read_all(&root.section("upstreams"));
        let overload = overload::read(&root.section("overload"));
        let drain = root.section("drain");
        let seconds = |seconds| Duration::from_secs(seconds);
        let lame_duck = drain.duration("lame_duck", seconds(5), seconds(0)..=seconds(300));
        let patience = drain.duration("requests", seconds(25), seconds(1)..=seconds(3_600));
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
            public_https_port: u16::try_from(public_https_port?).ok().filter(|_| has_public_https_port),
            trusted_proxies: trusted_proxies?.into_iter().map(|network| network.0).collect(),
            forwarders: Forwarders {
                networks: forwarders?.into_iter().map(|network| network.0).collect(),
                field: forwarded_field?,
            },
            environment: environment?,
            data_directory: data_directory?,
            credential: credential?,
            sealing_secret: sealing_secret?,
            platform_certificate: platform_certificate?,
            feed: feed?,
            serve_before_heard: serve_before_heard?,
            quota: quota?,
            upstreams: upstreams?,
            overload: overload?,
            threads: usize::try_from(threads?).ok()?,
            lame_duck: lame_duck?,
            drain: patience?,
            log_format: log_format?,
            log_filter: log_filter?,
            tracing: tracing?,
            file: None,
            told: Told::default(),
        })
    }
}

/// A network in CIDR notation, with words of our own for what is none.
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
    fn operators_passes_travel_as_plain_text_on_loopback_or_where_an_operator_says_so() {
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
