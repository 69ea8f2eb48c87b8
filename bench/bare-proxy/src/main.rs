//! The floor: pingora's proxy with TLS and forwarding and nothing else, for `bench/run side-by-side`.
//!
//!     bare_proxy PORT CERTIFICATE.pem KEY.pem UPSTREAM-ADDRESS
//!
//! The allocator and build of the gateway, on one thread.

use std::net::SocketAddr;

use anyhow::Context as _;
use async_trait::async_trait;
use pingora::listeners::tls::TlsSettings;
use pingora::proxy::{ProxyHttp, Session, http_proxy_service};
use pingora::server::Server;
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::HttpPeer;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

struct Bare {
    upstream: SocketAddr,
}

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut ()) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }
}

fn main() -> anyhow::Result<()> {
    // Before pingora chooses another one: the gateway's.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, certificate, key, upstream] = arguments.as_slice() else {
        anyhow::bail!("usage: bare_proxy PORT CERTIFICATE.pem KEY.pem UPSTREAM-ADDRESS");
    };
    let upstream = upstream.parse().context("the upstream is an address and a port")?;
    let conf = ServerConf { threads: 1, upstream_keepalive_pool_size: 1024, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, Bare { upstream });
    let mut tls = TlsSettings::intermediate(certificate, key)?;
    tls.enable_h2();
    service.add_tls_with_settings(&format!("127.0.0.1:{port}"), None, tls);
    server.add_service(service);
    server.run_forever()
}
