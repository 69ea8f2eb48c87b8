//! How one process of the platform reaches another, and how it is reached: with TLS, by certificates of the platform's own
//! authority, or as plain text where that is loopback or said to be meant.
//!
//! A process that is told to use TLS never falls back: a server that speaks plain text, or has another authority's
//! certificate, is not spoken to, and what would prove us is not sent.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use reqwest::{Certificate, ClientBuilder, Url};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::Section;
use crate::secret::Secret;

/// Time for a handshake: one that takes longer gives its place back.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);

/// Another process of the platform: where it listens, and whose certificate is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    url: Url,
    authority: Option<Vec<u8>>,
}

/// Text that says no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write the address of its internal listener, such as \"http://127.0.0.1:7003\"")]
pub struct InvalidPeer;

impl std::str::FromStr for Peer {
    type Err = InvalidPeer;

    fn from_str(text: &str) -> Result<Self, InvalidPeer> {
        let url = Url::parse(text).map_err(|_| InvalidPeer)?;
        let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        let bare = url.path() == "/" && url.fragment().is_none() && url.has_host();
        let spoken = matches!(url.scheme(), "http" | "https");
        if plain && bare && spoken { Ok(Self { url, authority: None }) } else { Err(InvalidPeer) }
    }
}

impl Peer {
    /// From `url`, `ca_certificate_file` and `plain_text`. Plain text is for loopback, unless `plain_text` says that the
    /// way there is nobody else's.
    pub fn read(section: &Section<'_>, default: &str) -> Option<Self> {
        let (url, authority) = (section.optional::<Self>("url"), section.path("ca_certificate_file"));
        let plain_text = section.flag("plain_text", false);
        let (url, authority, plain_text) = (url?, authority?, plain_text?);
        let mut peer = url.map_or_else(|| default.parse().ok(), Some)?;
        let is_plain = peer.url.scheme() == "http";
        if is_plain && authority.is_some() {
            section.complain("url", "with ca_certificate_file it begins with https://");
            return None;
        }
        if is_plain && !plain_text && !peer.is_here() {
            section.complain(
                "url",
                "credentials would be sent there as plain text: use https:// and ca_certificate_file, or say \
                 plain_text = true if nobody else can read on the way",
            );
            return None;
        }
        if let Some(file) = authority {
            match std::fs::read(&file).map_err(anyhow::Error::from).and_then(|pem| {
                anyhow::ensure!(!Certificate::from_pem_bundle(&pem)?.is_empty(), "there is no certificate in it");
                Ok(pem)
            }) {
                Ok(pem) => peer.authority = Some(pem),
                Err(error) => {
                    section.complain("ca_certificate_file", format!("it cannot be used: {error:#}"));
                    return None;
                }
            }
        }
        Some(peer)
    }

    /// What is at this path.
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url.as_str().trim_end_matches('/'))
    }

    /// Its host and port, for who looks names up by itself; `None` for the host where that is an address.
    pub fn place(&self) -> (Option<&str>, Option<u16>) {
        (self.url.domain(), self.url.port_or_known_default())
    }

    /// A client of it: directly, without redirects, and by TLS if that was said.
    ///
    /// # Errors
    /// When the authority's certificate cannot be used, which reading excludes.
    pub fn client(&self) -> reqwest::Result<ClientBuilder> {
        // A proxy of the environment would be given our token.
        let builder = ClientBuilder::new()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .https_only(self.url.scheme() == "https");
        Ok(match &self.authority {
            Some(pem) => builder.tls_certs_only(Certificate::from_pem_bundle(pem)?),
            None => builder,
        })
    }

    fn is_here(&self) -> bool {
        match self.url.host_str() {
            Some("localhost") => true,
            Some(host) => host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback()),
            None => false,
        }
    }
}

/// What a listener shows that speaks TLS 1.3.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<rustls::ServerConfig>);

impl ServerTls {
    /// From a chain and its key, PEM.
    ///
    /// # Errors
    /// When a file cannot be read, others may read the key, or they do not belong together.
    pub fn load(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let place = || format!("the certificate {}", certificate.display());
        let (chain, key) = chain_and_key(certificate, key)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .with_context(place)?;
        Ok(Self(Arc::new(config)))
    }

    /// From `certificate_file` and `key_file`; `Some(None)` when there are none.
    pub fn read(section: &Section<'_>) -> Option<Option<Self>> {
        let (certificate, key) = (section.path("certificate_file"), section.path("key_file"));
        match (certificate?, key?) {
            (None, None) => Some(None),
            (Some(certificate), Some(key)) => match Self::load(&certificate, &key) {
                Ok(tls) => Some(Some(tls)),
                Err(error) => {
                    section.complain("certificate_file", format!("{error:#}"));
                    None
                }
            },
            (Some(_), None) => {
                section.missing("key_file", "\"data/tls/domains-service.key\"");
                None
            }
            (None, Some(_)) => {
                section.missing("certificate_file", "\"data/tls/domains-service.pem\"");
                None
            }
        }
    }

    /// The same for a listener that is sent credentials: off loopback it has a certificate, unless `plain_text` says that
    /// nobody else can read on the way.
    pub fn read_for(section: &Section<'_>, listener: &str, address: Option<SocketAddr>) -> Option<Option<Self>> {
        let (tls, plain_text) = (Self::read(section), section.flag("plain_text", false));
        let (tls, plain_text) = (tls?, plain_text?);
        if tls.is_none() && !plain_text && address.is_some_and(|address| !address.ip().is_loopback()) {
            section.complain(
                "certificate_file",
                format!(
                    "{listener} is sent credentials and is not on loopback: name a certificate and its key_file \
                     (`tollhouse init` makes both), or say plain_text = true if nobody else can read on the way"
                ),
            );
            return None;
        }
        Some(tls)
    }

    /// Shakes hands.
    pub(crate) async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        let accepting = TlsAcceptor::from(self.0.clone()).accept(stream);
        tokio::time::timeout(HANDSHAKE_TIME_MAX, accepting).await.map_err(std::io::Error::from)?
    }
}

/// A chain and its key, PEM: what a process shows to whoever it speaks with.
///
/// # Errors
/// When a file cannot be read or holds none, or others may read the key.
pub fn chain_and_key(
    certificate: &Path,
    key: &Path,
) -> anyhow::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let chain = certificates(certificate)?;
    let key = Secret::load_with(key, |text| Ok(PrivateKeyDer::from_pem_slice(text.as_bytes())?))?;
    Ok((chain, key))
}

/// The certificates of a file, PEM; at least one.
///
/// # Errors
/// When it cannot be read, or there is none in it.
pub fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let place = || format!("the certificate {}", file.display());
    let pem = std::fs::read(file).with_context(place)?;
    let all: Vec<_> = CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().with_context(place)?;
    anyhow::ensure!(!all.is_empty(), "there is no certificate in {}", file.display());
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::config::Source;
    use crate::secret::write_private;
    use crate::serve::{ServeLimits, bind, serve_over};
    use crate::shutdown::Shutdown;

    /// An authority, and a certificate of it for 127.0.0.1 in files.
    fn authority(directory: &Path) -> (Vec<u8>, ServerTls) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let leaf_key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&leaf_key, &issuer).unwrap();
        let [certificate, key] = ["leaf.pem", "leaf.key"].map(|name| directory.join(name));
        std::fs::write(&certificate, leaf.pem()).unwrap();
        write_private(&key, leaf_key.serialize_pem().as_bytes()).unwrap();
        (root.into_bytes(), ServerTls::load(&certificate, &key).unwrap())
    }

    async fn asked(peer: &Peer) -> Result<String, reqwest::Error> {
        let client = peer.client()?.timeout(Duration::from_secs(10)).build()?;
        client.get(peer.at("/")).bearer_auth("the credential").send().await?.text().await
    }

    #[tokio::test]
    async fn who_is_told_to_use_tls_speaks_to_the_platforms_own_and_to_nobody_else() {
        let directory = tempfile::tempdir().unwrap();
        let (root, tls) = authority(directory.path());
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let (address, end) = (listener.local_addr().unwrap(), Shutdown::new());
        let router = axum::Router::new().route("/", axum::routing::get(|| async { "here" }));
        let serving = tokio::spawn(serve_over(listener, Some(tls), router, ServeLimits::default(), end.clone()));
        let peer = |scheme: &str, authority: Option<&Vec<u8>>| {
            let peer: Peer = format!("{scheme}://{address}").parse().unwrap();
            Peer { authority: authority.cloned(), ..peer }
        };
        assert_eq!(asked(&peer("https", Some(&root))).await.unwrap(), "here");
        let (another, _) = authority(directory.path());
        assert!(asked(&peer("https", Some(&another))).await.is_err(), "another authority's");
        assert!(asked(&peer("https", None)).await.is_err(), "nobody else vouches for it");
        assert!(asked(&peer("http", None)).await.is_err(), "plain text is not answered");
        end.begin();
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn who_is_told_to_use_tls_tells_a_server_of_plain_text_nothing() {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = vec![0; 4_096];
            let read = stream.read(&mut bytes).await.unwrap();
            bytes.truncate(read);
            bytes
        });
        let peer: Peer = format!("https://{address}").parse().unwrap();
        assert!(asked(&peer).await.is_err());
        let heard = heard.await.unwrap();
        assert_eq!(heard.first(), Some(&0x16), "a handshake");
        assert!(!heard.windows(10).any(|window| window == b"credential"));
    }

    fn read(text: &str) -> Result<String, String> {
        let source = Source::from_text("test", &format!("[feed]\n{text}"), "TEST", BTreeMap::new());
        let reader = source.reader().unwrap();
        let peer = Peer::read(&reader.root().section("feed"), "http://127.0.0.1:7003");
        reader.finish(peer).map(|peer| peer.at("/x")).map_err(|problems| problems.to_string())
    }

    #[test]
    fn plain_text_is_for_loopback_unless_it_is_meant() {
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
        let refused = read("url = \"https://a:1\"\nca_certificate_file = \"/nowhere/ca.pem\"").unwrap_err();
        assert!(refused.contains("cannot be used"), "{refused}");
    }

    #[test]
    fn a_peer_is_a_host_and_a_port_and_nothing_else() {
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
