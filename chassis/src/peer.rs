//! Connections between processes of the platform: with TLS and certificates of the platform's own authority, or as
//! plain text on loopback or where `plain_text = true` allows it.
//!
//! With an https URL a process never falls back to plain text: it sends no request and no credential to a server
//! without TLS or with a certificate of another authority.

mod listener;
mod name;

use std::net::IpAddr;

use reqwest::{ClientBuilder, Url};

pub use self::listener::{CERTIFICATES_BYTES_MAX, Listeners, ServerTls, certificates, chain_and_key};
pub use self::name::{TlsName, client_tls};
use crate::config::Section;
use crate::secret::read_regular;

/// Another process of the platform: its address, and how its certificate is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    url: Url,
    /// The CA certificate (PEM), and the name that the process's certificate must have.
    tls: Option<(Vec<u8>, TlsName)>,
}

/// Text that is not the address of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use the address of an internal listener, for example \"http://127.0.0.1:7003\"")]
pub struct InvalidPeer;

impl std::str::FromStr for Peer {
    type Err = InvalidPeer;

    fn from_str(text: &str) -> Result<Self, InvalidPeer> {
        let url = Url::parse(text).map_err(|_| InvalidPeer)?;
        let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        let bare = url.path() == "/" && url.fragment().is_none() && url.has_host();
        let has_scheme = matches!(url.scheme(), "http" | "https");
        if plain && bare && has_scheme { Ok(Self { url, tls: None }) } else { Err(InvalidPeer) }
    }
}

impl Peer {
    /// Reads `url`, `ca_certificate_file`, `server_name` and `plain_text`. Without `plain_text`, plain text is refused
    /// off loopback.
    pub fn read(section: &Section<'_>, default: &str) -> Option<Self> {
        let (url, authority) =
            (section.value("url", default.parse::<Self>().ok()?), section.path("ca_certificate_file"));
        let (server_name, plain_text) = (section.optional("server_name"), section.flag("plain_text", false));
        let (peer, authority, server_name, plain_text) = (url?, authority?, server_name?, plain_text?);
        let is_plain = peer.url.scheme() == "http";
        if is_plain && authority.is_some() {
            section.complain("url", "use https:// with ca_certificate_file");
            return None;
        }
        if server_name.is_some() && authority.is_none() {
            section.complain("server_name", "set ca_certificate_file as well");
            return None;
        }
        if is_plain && !plain_text && !peer.is_here() {
            section.complain(
                "url",
                "credentials would be sent there as plain text: use https:// and ca_certificate_file, or set \
                 plain_text = true if the network path is private",
            );
            return None;
        }
        let Some(file) = authority else { return Some(peer) };
        let Some(name) = server_name.or_else(|| peer.host().parse().ok()) else {
            section.missing("server_name", "\"domains-service\"");
            return None;
        };
        let read = read_regular(&file, CERTIFICATES_BYTES_MAX).map(|(authority, _)| authority.to_vec());
        match read.and_then(|authority| client_tls(&authority, &name).map(|_| authority)) {
            Ok(authority) => Some(Self { tls: Some((authority, name)), ..peer }),
            Err(error) => {
                section.complain("ca_certificate_file", format!("cannot use it: {error:#}"));
                None
            }
        }
    }

    /// The URL of this path.
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url.as_str().trim_end_matches('/'))
    }

    /// Host name and port, for a caller that resolves names itself; the name is `None` for an IP address.
    pub fn place(&self) -> (Option<&str>, Option<u16>) {
        (self.url.domain(), self.url.port_or_known_default())
    }

    /// A client for this process: without proxy and redirects, and with TLS if configured.
    ///
    /// # Errors
    /// If the CA certificate cannot be used, which `read` excludes.
    pub fn client(&self) -> anyhow::Result<ClientBuilder> {
        // A proxy from the environment would receive our token.
        let builder = ClientBuilder::new()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .https_only(self.url.scheme() == "https");
        Ok(match &self.tls {
            Some((authority, name)) => builder.tls_backend_preconfigured(client_tls(authority, name)?),
            None => builder,
        })
    }

    fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default().trim_matches(['[', ']'])
    }

    fn is_here(&self) -> bool {
        self.host() == "localhost" || self.host().parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::SocketAddr;
    use std::path::Path;
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::config::Source;
    use crate::secret::write_private;
    use crate::serve::{ServeLimits, bind, serve_over};
    use crate::shutdown::Shutdown;
    use crate::supervise::Supervisor;

    /// An authority.
    struct Authority {
        issuer: Issuer<'static, KeyPair>,
        root: Vec<u8>,
    }

    impl Authority {
        fn new() -> Self {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let root = params.self_signed(&key).unwrap().pem().into_bytes();
            Self { issuer: Issuer::new(params, key), root }
        }

        /// Writes a certificate for this name that expires in this year to files.
        fn put(&self, directory: &Path, name: &str, year: i32) -> ServerTls {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            params.use_authority_key_identifier_extension = true;
            let leaf = params.signed_by(&key, &self.issuer).unwrap();
            let [certificate, key_file] = ["leaf.pem", "leaf.key"].map(|name| directory.join(name));
            write_private(&key_file, key.serialize_pem().as_bytes()).unwrap();
            write_private(&certificate, leaf.pem().as_bytes()).unwrap();
            ServerTls::load(&certificate, &key_file).unwrap()
        }
    }

    /// An authority, and its certificate for this name in files.
    fn authority(directory: &Path, name: &str) -> (Vec<u8>, ServerTls) {
        let authority = Authority::new();
        let tls = authority.put(directory, name, 3_000);
        (authority.root, tls)
    }

    /// Watches the files of a listener's certificate.
    fn supervisor() -> Supervisor {
        Supervisor::register(&crate::metrics::Registry::new(), "test_task_restarts_total").unwrap()
    }

    async fn get(peer: &Peer) -> anyhow::Result<String> {
        let client = peer.client()?.timeout(Duration::from_secs(10)).build()?;
        Ok(client.get(peer.at("/")).bearer_auth("the credential").send().await?.text().await?)
    }

    #[tokio::test]
    async fn with_https_only_the_named_process_with_a_certificate_of_the_platform_is_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let (root, tls) = authority(directory.path(), "domains-service");
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let (address, end) = (listener.local_addr().unwrap(), Shutdown::new());
        let router = axum::Router::new().route("/", axum::routing::get(|| async { "here" }));
        let serving =
            tokio::spawn(serve_over(listener, Some((tls, supervisor())), router, ServeLimits::default(), end.clone()));
        let peer = |scheme: &str, tls: Option<(&Vec<u8>, &str)>| {
            let peer: Peer = format!("{scheme}://{address}").parse().unwrap();
            Peer { tls: tls.map(|(authority, name)| (authority.clone(), name.parse().unwrap())), ..peer }
        };
        assert_eq!(get(&peer("https", Some((&root, "domains-service")))).await.unwrap(), "here");
        for (name, why) in
            [("orders-service", "another process"), ("127.0.0.1", "an address is not the process's name")]
        {
            assert!(get(&peer("https", Some((&root, name)))).await.is_err(), "{why}");
        }
        let (another, _) = authority(directory.path(), "domains-service");
        assert!(
            get(&peer("https", Some((&another, "domains-service")))).await.is_err(),
            "a certificate of another authority"
        );
        assert!(get(&peer("https", None)).await.is_err(), "the system's CA certificates do not include the platform's");
        assert!(get(&peer("http", None)).await.is_err(), "plain text is not answered");
        end.begin();
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn with_https_no_credential_is_sent_to_a_server_without_tls() {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = vec![0; 4_096];
            let read = stream.read(&mut bytes).await.unwrap();
            bytes.truncate(read);
            bytes
        });
        let peer: Peer = format!("https://{address}").parse().unwrap();
        assert!(get(&peer).await.is_err());
        let received = received.await.unwrap();
        assert_eq!(received.first(), Some(&0x16), "a handshake");
        assert!(!received.windows(10).any(|window| window == b"credential"));
    }

    #[tokio::test]
    async fn redirects_of_a_peer_are_not_followed() {
        let end = Shutdown::new();
        let listening = async |router: axum::Router| {
            let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
            let address = listener.local_addr().unwrap();
            tokio::spawn(serve_over(listener, None, router, ServeLimits::default(), end.clone()));
            address
        };
        let elsewhere = listening(axum::Router::new().route("/", axum::routing::get(|| async { "elsewhere" }))).await;
        let to = format!("http://{elsewhere}/");
        let redirect = axum::routing::get(async move || axum::response::Redirect::temporary(&to));
        let peer: Peer =
            format!("http://{}", listening(axum::Router::new().route("/", redirect)).await).parse().unwrap();
        assert_eq!(get(&peer).await.unwrap(), "", "the credential stays with the peer");
        end.begin();
    }

    #[tokio::test]
    async fn a_listener_uses_a_replaced_certificate_without_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let ours = Authority::new();
        let put = |authority: &Authority, year| authority.put(directory.path(), "domains-service", year);
        let tls = put(&ours, 3_000);
        let registry = crate::metrics::registry("1").unwrap();
        ServerTls::show(&registry, [("internal", &Some(tls.clone())), ("http", &None)]).unwrap();
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let (address, end) = (listener.local_addr().unwrap(), Shutdown::new());
        let router = axum::Router::new().route("/", axum::routing::get(|| async { "here" }));
        let serving =
            tokio::spawn(serve_over(listener, Some((tls, supervisor())), router, ServeLimits::default(), end.clone()));
        let trusting = |authority: &Authority| {
            let peer: Peer = format!("https://{address}").parse().unwrap();
            Peer { tls: Some((authority.root.clone(), "domains-service".parse().unwrap())), ..peer }
        };
        let is_shown = async |series: &str| {
            let looking = async {
                while !crate::metrics::render(&registry).unwrap().contains(series) {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), looking).await.unwrap_or_else(|_| panic!("{series}"));
        };
        assert_eq!(get(&trusting(&ours)).await.unwrap(), "here");
        put(&ours, 3_001);
        let ends = "listener_certificate_expiry_timestamp_seconds{listener=\"internal\"} 32535216000";
        is_shown(ends).await;
        assert_eq!(get(&trusting(&ours)).await.unwrap(), "here");
        // Clients could not verify a certificate of another authority.
        let another = Authority::new();
        put(&another, 3_002);
        is_shown("listener_certificate_fault{certificate=\"refused\",listener=\"internal\",reason=\"authority\"} 1")
            .await;
        assert_eq!(get(&trusting(&ours)).await.unwrap(), "here");
        assert!(get(&trusting(&another)).await.is_err());
        let rendered = crate::metrics::render(&registry).unwrap();
        assert!(rendered.contains(ends) && !rendered.contains("listener=\"http\""), "{rendered}");
        end.begin();
        serving.await.unwrap().unwrap();
    }

    fn read(text: &str) -> Result<String, String> {
        let source = Source::from_text("test", &format!("[feed]\n{text}"), "TEST", BTreeMap::new());
        let reader = source.reader().unwrap();
        let peer = Peer::read(&reader.root().section("feed"), "http://127.0.0.1:7003");
        reader.finish(peer).map(|peer| peer.at("/x")).map_err(|problems| problems.to_string())
    }

    #[test]
    fn plain_text_off_loopback_needs_the_setting_plain_text() {
        for (text, at) in [
            ("", "http://127.0.0.1:7003/x"),
            ("url = \"http://localhost:1/\"", "http://localhost:1/x"),
            ("url = \"http://[::1]:1\"", "http://[::1]:1/x"),
            ("url = \"https://control.internal\"", "https://control.internal/x"),
            ("url = \"http://domains-service:7003\"\nplain_text = true", "http://domains-service:7003/x"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(at), "{text}");
        }
        for url in ["http://domains-service:7003", "http://10.0.0.1:7003", "http://localhost.evil.example"] {
            let refused = read(&format!("url = \"{url}\"")).unwrap_err();
            assert!(refused.contains("plain_text = true"), "{refused}");
        }
        let refused = read("url = \"http://127.0.0.1:1\"\nca_certificate_file = \"/ca.pem\"").unwrap_err();
        assert!(refused.contains("https://"), "{refused}");
        let refused = read("url = \"https://a:1\"\nserver_name = \"domains-service\"").unwrap_err();
        assert!(refused.contains("ca_certificate_file"), "{refused}");
        let refused = read("url = \"https://a:1\"\nca_certificate_file = \"/nowhere/ca.pem\"").unwrap_err();
        assert!(refused.contains("cannot use it"), "{refused}");
    }

    #[test]
    fn a_peer_is_a_host_and_a_port() {
        for good in ["http://127.0.0.1:7003", "http://domains-service:7003/", "https://control.internal"] {
            let read: Peer = good.parse().unwrap();
            assert!(!read.at("").ends_with('/'), "{good}");
        }
        for bad in
            ["", "127.0.0.1:7003", "ftp://a", "http://a/b", "http://a?b", "http://u:p@a", "http://a#b", "http://"]
        {
            assert_eq!(bad.parse::<Peer>(), Err(InvalidPeer), "{bad:?}");
        }
    }
}
