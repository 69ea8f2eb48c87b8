//! What the proxy library asks of a stream beside reading and writing.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::{ALPN, SslDigest};
use pingora::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, TimingDigest, UniqueID,
    UniqueIDType,
};
use tokio::io::AsyncWriteExt;

use super::{EdgeStream, Transport};

#[async_trait]
impl<S: Transport> Shutdown for EdgeStream<S> {
    async fn shutdown(&mut self) {
        // Bounded by the pace of writes. A client that is gone needs no farewell.
        let _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl<S: Transport> UniqueID for EdgeStream<S> {
    fn id(&self) -> UniqueIDType {
        self.descriptor
    }
}

impl<S: Transport> Ssl for EdgeStream<S> {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.ssl.clone()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.connection.tls().map(|tls| if tls.h2 { ALPN::H2 } else { ALPN::H1 })
    }
}

impl<S: Transport> GetTimingDigest for EdgeStream<S> {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        vec![Some(self.timing.clone())]
    }
}

impl<S: Transport> GetProxyDigest for EdgeStream<S> {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        Some(Arc::clone(&self.proxy))
    }
}

impl<S: Transport> GetSocketDigest for EdgeStream<S> {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        Some(Arc::clone(&self.socket))
    }
}

impl<S: Transport> Peek for EdgeStream<S> {}
