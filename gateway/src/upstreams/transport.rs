//! How an upstream is spoken to.

use std::sync::Arc;

use contract::project::UpstreamName;
use rustls::ClientConfig;

use super::{Endpoint, Tls};

/// How an upstream is spoken to.
#[derive(Clone, Debug)]
pub(crate) enum Transport {
    /// HTTP/1.1 in clear text.
    Plain,
    /// HTTP/2 in clear text, which it is known to speak.
    PlainHttp2,
    /// TLS; which version of HTTP, both sides agree on in the handshake.
    Tls(Arc<Tls>),
}

impl Transport {
    /// The part of a URL that says so.
    pub(crate) fn scheme(&self) -> &'static str {
        match self {
            Self::Plain => "http",
            Self::PlainHttp2 => "h2c",
            Self::Tls(_) => "https",
        }
    }

    /// The settings of TLS.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        match self {
            Self::Tls(tls) => Some(tls),
            Self::Plain | Self::PlainHttp2 => None,
        }
    }

    /// Whether its certificate is not looked at.
    pub(crate) fn is_insecure(&self) -> bool {
        self.tls().is_some_and(|tls| tls.settings.insecure)
    }

    /// Says that it is insecure, where it is.
    pub(super) fn shout(&self, upstream: &UpstreamName) {
        if self.is_insecure() {
            tracing::warn!(
                upstream = upstream.as_str(),
                "INSECURE: the certificate of this upstream is not looked at, so whoever is in between can read and \
                 change every request; name its authority with tls.ca_certificate_file and remove tls.insecure"
            );
        }
    }

    /// Takes the files of TLS that have changed.
    pub(super) async fn reload(&self, upstream: &UpstreamName) {
        let Self::Tls(tls) = self else { return };
        let (tls, upstream) = (tls.clone(), upstream.as_str());
        match tokio::task::spawn_blocking(move || tls.reload()).await {
            Ok(Ok(true)) => tracing::info!(upstream, "the files of TLS to an upstream were read again"),
            Ok(Ok(false)) | Err(_) => {}
            Ok(Err(error)) => {
                let error = format!("{error:#}");
                tracing::error!(
                    upstream,
                    error,
                    "the files of TLS to an upstream cannot be used; what was in force stays"
                );
            }
        }
    }

    /// Whether a request goes over a connection that carries many: that is known, or was agreed on the last time.
    pub(crate) fn multiplexes(&self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Plain => false,
            Self::PlainHttp2 => true,
            Self::Tls(tls) => tls.settings.http2 && endpoint.sessions.http2_agreed(),
        }
    }

    /// What a connection that carries many is made with today.
    pub(crate) fn tls_config(&self) -> Option<Arc<ClientConfig>> {
        self.tls().map(|tls| tls.config(true))
    }

    /// The scheme of URLs, as requests over HTTP/2 say it.
    pub(crate) fn url_scheme(&self) -> http::uri::Scheme {
        if self.tls().is_some() { http::uri::Scheme::HTTPS } else { http::uri::Scheme::HTTP }
    }
}
