//! One TLS handshake.

use std::sync::Arc;

use contract::hostname::Hostname;
use rustls::sign::CertifiedKey;
use rustls::{HandshakeKind, ProtocolVersion, ServerConnection};
use tokio::io::AsyncWriteExt;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::{CHALLENGE_PROTOCOL, H2_PROTOCOL, TlsTerms};
use crate::connection::TlsFacts;
use crate::stream::ByteStream;
use crate::{HandshakeOutcome, Hooks};

/// The alert record `fatal, unrecognized_name` (RFC 6066 section 3). Alerts before the server's first message are not
/// encrypted.
const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x70];

/// Encrypted bytes buffered for an HTTP/2 client that does not read: two records. Because the engine's flushes may be
/// deferred, it would otherwise fill the default of 64 KiB.
const H2_UNSENT_MAX: usize = 32 * 1024;

/// Reads the `ClientHello`, finds the certificate and completes the handshake. The caller sets the deadline. An error
/// is the outcome of a handshake after which nothing is served.
pub(crate) async fn accept<S: ByteStream>(
    io: S,
    terms: &TlsTerms,
    hooks: &dyn Hooks,
) -> Result<(TlsStream<S>, TlsFacts), HandshakeOutcome> {
    let failed = |_| HandshakeOutcome::Failed;
    let mut start = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), io).await.map_err(failed)?;
    let (sni, challenge) = {
        let hello = start.client_hello();
        let sni = hello.server_name().and_then(|name| Hostname::from_ascii(name).ok());
        // RFC 8737: the authority offers only this protocol. A client that offers others too is not an authority.
        let challenge = hello
            .alpn()
            .is_some_and(|mut offered| offered.next() == Some(CHALLENGE_PROTOCOL) && offered.next().is_none());
        (sni, challenge)
    };
    let found = sni.and_then(|sni| {
        let certificate = if challenge { hooks.challenge_certificate(&sni) } else { hooks.certificate(&sni) };
        Some((sni, certificate?))
    });
    let Some((sni, certificate)) = found else {
        // An error needs no action: the client may be gone already.
        let _ = start.io.write_all(&UNRECOGNIZED_NAME).await;
        let _ = start.io.shutdown().await;
        return Err(HandshakeOutcome::UnknownName);
    };
    let terms = terms.presenting(Arc::clone(&certificate), challenge);
    let mut stream = start.into_stream(terms).await.map_err(failed)?;
    if challenge {
        // The authority has seen the certificate. No data follows over this protocol.
        let _ = stream.shutdown().await;
        return Err(HandshakeOutcome::Challenge);
    }
    let facts = facts(stream.get_ref().1, sni, certificate);
    if facts.h2 {
        stream.get_mut().1.set_buffer_limit(Some(H2_UNSENT_MAX));
    }
    Ok((stream, facts))
}

fn facts(session: &ServerConnection, sni: Hostname, certificate: Arc<CertifiedKey>) -> TlsFacts {
    TlsFacts {
        sni,
        version: match session.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLSv1_3",
            _ => "TLSv1_2",
        },
        cipher: session.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or("unknown"),
        resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
        h2: session.alpn_protocol() == Some(H2_PROTOCOL),
        certificate,
    }
}
