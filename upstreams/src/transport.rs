//! The protocol to an upstream.

use std::sync::Arc;

use contract::project::UpstreamName;
use rustls::ClientConfig;

use super::{Endpoint, Tls};

/// The protocol to an upstream.
#[derive(Clone, Debug)]
pub enum Transport {
    /// HTTP/1.1 in clear text.
    Plain,
    /// HTTP/2 in clear text, without negotiation.
    PlainHttp2,
    /// TLS; the handshake negotiates the version of HTTP.
    Tls(Arc<Tls>),
}

impl Transport {
    /// The scheme in endpoint settings.
    pub fn scheme(&self) -> &'static str {
        match self {
            Self::Plain => "http",
            Self::PlainHttp2 => "h2c",
            Self::Tls(_) => "https",
        }
    }

    /// TLS, if it is used.
    pub fn tls(&self) -> Option<&Tls> {
        match self {
            Self::Tls(tls) => Some(tls),
            Self::Plain | Self::PlainHttp2 => None,
        }
    }

    /// Whether its certificate is not verified.
    pub fn is_insecure(&self) -> bool {
        self.tls().is_some_and(|tls| tls.settings.insecure)
    }

    /// Logs a warning if it is insecure.
    pub(super) fn warn_if_insecure(&self, upstream: &UpstreamName) {
        if self.is_insecure() {
            tracing::warn!(
                upstream = upstream.as_str(),
                "INSECURE: the certificate of this upstream is not verified, so anyone on the network path can \
                 read and change every request; set tls.ca_certificate_file and remove tls.insecure"
            );
        }
    }

    /// Reloads the TLS files if they have changed.
    pub(super) async fn reload(&self, upstream: &UpstreamName) {
        let Self::Tls(tls) = self else { return };
        let (tls, upstream) = (tls.clone(), upstream.as_str());
        match tokio::task::spawn_blocking(move || tls.reload()).await {
            Ok(Ok(true)) => tracing::info!(upstream, "reloaded the TLS files of an upstream"),
            Ok(Ok(false)) | Err(_) => {}
            Ok(Err(error)) => {
                let error = format!("{error:#}");
                tracing::error!(
                    upstream,
                    error,
                    "cannot use the changed TLS files of an upstream; the previous ones stay in use"
                );
            }
        }
    }

    /// Whether requests share HTTP/2 connections: configured, or negotiated the last time.
    pub fn multiplexes(&self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Plain => false,
            Self::PlainHttp2 => true,
            Self::Tls(tls) => tls.settings.http2 && endpoint.http2.http2_agreed(),
        }
    }

    /// The TLS configuration of new HTTP/2 connections.
    pub fn tls_config(&self) -> Option<Arc<ClientConfig>> {
        self.tls().map(|tls| tls.config(true))
    }

    /// The scheme of HTTP/2 requests.
    pub fn url_scheme(&self) -> http::uri::Scheme {
        if self.tls().is_some() { http::uri::Scheme::HTTPS } else { http::uri::Scheme::HTTP }
    }
}
