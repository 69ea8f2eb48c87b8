//! The floor: pingora's proxy with TLS and forwarding and nothing else, for `bench/run side-by-side`.
//!
//!     bare_proxy CERTIFICATE.pem KEY.pem CA.pem NAME PORT=FORM=ADDRESS...
//!
//! A listener for each upstream, which speaks HTTP/1.1 (`http1`), the same over TLS with a certificate of CA for NAME
//! (`tls`), or HTTP/2 without TLS (`http2`). The allocator and build of the gateway, on one thread.

use std::net::SocketAddr;

use anyhow::Context as _;
use async_trait::async_trait;
use pingora::listeners::tls::TlsSettings;
use pingora::protocols::ALPN;
use pingora::protocols::http::v2::server::H2Options;
use pingora::proxy::{ProxyHttp, Session, http_proxy_service};
use pingora::server::Server;
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::HttpPeer;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What clients may send of a body before they hear from the proxy: by default 64 KB in a round trip.
const WINDOW: u32 = 1024 * 1024;
/// Requests at once over one connection of HTTP/2 to the upstream: by default 1.
const STREAMS: usize = 100;

struct Bare {
    peer: HttpPeer,
}

impl Bare {
    fn new(form: &str, upstream: SocketAddr, name: &str) -> anyhow::Result<Self> {
        let mut peer = HttpPeer::new(upstream, form == "tls", name.to_owned());
        match form {
            "http1" | "tls" => peer.options.alpn = ALPN::H1,
            "http2" => {
                peer.options.alpn = ALPN::H2;
                peer.options.max_h2_streams = STREAMS;
            }
            _ => anyhow::bail!("{form} is not http1, tls or http2"),
        }
        Ok(Self { peer })
    }
}

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut ()) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(self.peer.clone()))
    }
}

fn main() -> anyhow::Result<()> {
    // Before pingora chooses another one: the gateway's.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [certificate, key, ca, name, listeners @ ..] = arguments.as_slice() else {
        anyhow::bail!("usage: bare_proxy CERTIFICATE.pem KEY.pem CA.pem NAME PORT=FORM=ADDRESS...");
    };
    let conf = ServerConf {
        threads: 1,
        upstream_keepalive_pool_size: 1024,
        ca_file: Some(ca.clone()),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    for listener in listeners {
        let (port, upstream) = listener.split_once('=').context("a listener is PORT=FORM=ADDRESS")?;
        let (form, address) = upstream.split_once('=').context("a listener is PORT=FORM=ADDRESS")?;
        let address = address.parse().context("the upstream is an address and a port")?;
        let mut service = http_proxy_service(&server.configuration, Bare::new(form, address, name)?);
        let mut options = H2Options::new();
        options.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        if let Some(proxy) = service.app_logic_mut() {
            proxy.h2_options = Some(options);
        }
        let mut tls = TlsSettings::intermediate(certificate, key)?;
        tls.enable_h2();
        service.add_tls_with_settings(&format!("127.0.0.1:{port}"), None, tls);
        server.add_service(service);
    }
    server.run_forever()
}
