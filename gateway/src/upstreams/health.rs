//! Asking addresses how they are, before a request finds out.
//!
//! Off unless an upstream's settings say what to ask. A GET of one path, on the upstream's own port and spoken as requests
//! are, or on another one in clear text (services keep their health on a listener for operators), has to be answered with 2xx in time. So many bad answers in
//! a row take an address out of the turn, so many good ones bring it back. When every address is out, requests are tried
//! anyway: a check that is wrong must not be worse than none.

mod multiplexed;

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{DialError, Endpoint, Stream, Transport, UpstreamSettings, dial};

/// The start of a status line: `HTTP/1.1 200`.
const STATUS_BYTES: usize = 12;

/// What an address is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// A GET of this path.
    Get(String),
    /// gRPC's own question (`grpc.health.v1.Health/Check`) about this service; empty: about all.
    Grpc(String),
}

/// What is asked, and what is made of the answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HealthCheck {
    /// What is asked.
    pub question: Question,
    /// The port, when it is not that of the requests.
    pub port: Option<u16>,
    /// The pause between two questions.
    pub every: Duration,
    /// Time for one answer, the connection included.
    pub timeout: Duration,
    /// Bad answers in a row that take an address out.
    pub falls: u32,
    /// Good answers in a row that bring it back.
    pub rises: u32,
}

impl HealthCheck {
    /// Asks one address once, and tells it what came of that.
    pub(super) async fn look_at(&self, endpoint: &Endpoint, settings: &UpstreamSettings) {
        let well = tokio::time::timeout(self.timeout, self.ask(endpoint, settings)).await.unwrap_or(false);
        if endpoint.checked(well, self) {
            tracing::warn!(address = %endpoint.address, well, "an address of an upstream changed its health");
        }
    }

    /// Whether the answer is good. Whatever goes wrong is no such answer.
    async fn ask(&self, endpoint: &Endpoint, settings: &UpstreamSettings) -> bool {
        let http2 = matches!(self.question, Question::Grpc(_));
        let stream = match self.port {
            Some(port) => {
                TcpStream::connect((endpoint.address.ip(), port)).await.map(Stream::Plain).map_err(Into::into)
            }
            None => dial(&settings.transport, endpoint, http2, self.timeout).await,
        };
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => return self.unconnected(endpoint, &error),
        };
        let plain_http2 = self.port.is_none() && matches!(settings.transport, Transport::PlainHttp2);
        let host = self.host(endpoint, settings);
        match &self.question {
            Question::Get(path) if plain_http2 => multiplexed::get(stream, &host, path).await.unwrap_or(false),
            Question::Get(path) => ask_http1(stream, &host, path).await.unwrap_or(false),
            Question::Grpc(service) => multiplexed::grpc(stream, &host, service).await.unwrap_or(false),
        }
    }

    /// Which host is asked for.
    fn host(&self, endpoint: &Endpoint, settings: &UpstreamSettings) -> String {
        let mut address = endpoint.address;
        address.set_port(self.port.unwrap_or(address.port()));
        let host = settings.host.as_ref().and_then(|host| host.to_str().ok());
        host.map_or_else(|| address.to_string(), str::to_owned)
    }

    fn unconnected(&self, endpoint: &Endpoint, error: &DialError) -> bool {
        if self.port.is_none() {
            endpoint.record_failure(error);
        }
        false
    }
}

async fn ask_http1(mut stream: Stream, host: &str, path: &str) -> std::io::Result<bool> {
    let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: tollhouse\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    let mut status = [0; STATUS_BYTES];
    stream.read_exact(&mut status).await?;
    Ok(status.starts_with(b"HTTP/1.") && status.get(8..10) == Some(b" 2"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    #[test]
    fn so_many_bad_answers_take_an_address_out_and_so_many_good_ones_bring_it_back() {
        let check = HealthCheck {
            question: Question::Get("/".to_owned()),
            port: None,
            every: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
            falls: 3,
            rises: 2,
        };
        let endpoint = Endpoint::new(([127, 0, 0, 1], 1).into(), None, Arc::new(Semaphore::new(1)));
        let now = Duration::from_secs(1);
        let answers = [false, false, true, false, false, false, true, false, true, true];
        let up = [true, true, true, true, true, false, false, false, false, true];
        for (answer, up) in answers.into_iter().zip(up) {
            endpoint.checked(answer, &check);
            assert_eq!(endpoint.is_up(now), up);
        }
    }
}
