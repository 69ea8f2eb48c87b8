//! A real proxy and a small upstream.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::http::ResponseHeader;
use pingora::proxy::{FailToProxy, HttpProxy, ProxyHttp, Session, http_proxy};
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::HttpPeer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::listeners::LOOPBACK;
use crate::door::connection::Connection;
use crate::rejection::Rejection;

/// A proxy that does what the door asks of one, and nothing else.
pub(super) struct Gateway {
    upstream: SocketAddr,
    /// What the door had refused of every request that is over.
    pub(super) log: Mutex<Vec<Option<Rejection>>>,
}

#[async_trait]
impl ProxyHttp for Shared {
    type CTX = Option<Arc<Connection>>;

    fn new_ctx(&self) -> Self::CTX {
        None
    }

    async fn early_request_filter(&self, session: &mut Session, ctx: &mut Self::CTX) -> pingora::Result<()> {
        let connection = Connection::of(session).unwrap();
        connection.request_seen();
        *ctx = Some(connection);
        Ok(())
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut Self::CTX) -> pingora::Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.0.upstream, false, String::new())))
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Self::CTX,
    ) -> pingora::Result<()> {
        let connection = ctx.as_ref().unwrap();
        if response.status == 101 {
            connection.upgraded();
        }
        if connection.should_close() {
            session.set_keepalive(None);
        }
        Ok(())
    }

    async fn fail_to_proxy(&self, session: &mut Session, _: &pingora::Error, ctx: &mut Self::CTX) -> FailToProxy {
        let status = ctx.as_ref().and_then(|connection| connection.refusal()).map_or(502, Rejection::status);
        let _ = session.respond_error(status).await;
        FailToProxy { error_code: status, can_reuse_downstream: false }
    }

    async fn logging(&self, _: &mut Session, _: Option<&pingora::Error>, ctx: &mut Self::CTX) {
        let connection = ctx.take().unwrap();
        self.0.log.lock().push(connection.refusal());
        connection.request_done();
    }
}

/// The handle that pingora owns.
pub(super) struct Shared(Arc<Gateway>);

/// An upstream that says what it got. It counts every byte.
#[derive(Default)]
pub(super) struct Upstream {
    pub(super) bytes: AtomicUsize,
}

impl Upstream {
    async fn serve(self: Arc<Self>, mut tcp: TcpStream) {
        let mut received = Vec::new();
        loop {
            let Some((head_bytes, body_bytes)) = complete(&received) else {
                let mut buffer = [0; 4_096];
                let Ok(bytes @ 1..) = tcp.read(&mut buffer).await else { return };
                self.bytes.fetch_add(bytes, Ordering::AcqRel);
                received.extend_from_slice(&buffer[..bytes]);
                continue;
            };
            let head = String::from_utf8(received[..head_bytes].to_vec()).unwrap();
            if head.to_ascii_lowercase().contains("upgrade: websocket") {
                let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
                tcp.write_all(switched.as_bytes()).await.unwrap();
                tcp.write_all(&received[head_bytes..]).await.unwrap();
                let (mut reading, mut writing) = tcp.split();
                tokio::io::copy(&mut reading, &mut writing).await.unwrap();
                return;
            }
            let line = head.split(" HTTP/").next().unwrap().to_owned();
            let body = format!("{line} {body_bytes}\n");
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            tcp.write_all(response.as_bytes()).await.unwrap();
            received.drain(..head_bytes + body_bytes);
        }
    }
}

/// Lengths of head and body of the first message, if it is complete.
pub(super) fn complete(received: &[u8]) -> Option<(usize, usize)> {
    let head_bytes = received.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&received[..head_bytes]).to_ascii_lowercase();
    let body = &received[head_bytes..];
    let body_bytes = if head.contains("transfer-encoding: chunked") {
        body.windows(5).position(|end| end == b"0\r\n\r\n")? + 5
    } else {
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        length.unwrap_or(0)
    };
    (body.len() >= body_bytes).then_some((head_bytes, body_bytes))
}

/// A proxy, what is behind it, and what it writes down.
pub(super) async fn proxy() -> (Arc<HttpProxy<Shared>>, Arc<Gateway>, Arc<Upstream>) {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let gateway = Arc::new(Gateway { upstream: listener.local_addr().unwrap(), log: Mutex::default() });
    let upstream = Arc::new(Upstream::default());
    let serving = Arc::clone(&upstream);
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(Arc::clone(&serving).serve(tcp));
        }
    });
    let proxy = http_proxy(&Arc::new(ServerConf::default()), Shared(Arc::clone(&gateway)));
    (Arc::new(proxy), gateway, upstream)
}
