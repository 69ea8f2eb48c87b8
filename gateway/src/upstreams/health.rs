//! Asking addresses how they are, before a request finds out.
//!
//! Off unless an upstream's settings say what to ask. A GET of one path, on the upstream's own port or on another one
//! (services keep their health on a listener for operators), has to be answered with 2xx in time. So many bad answers in
//! a row take an address out of the turn, so many good ones bring it back. When every address is out, requests are tried
//! anyway: a check that is wrong must not be worse than none.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::Endpoint;

/// The start of a status line: `HTTP/1.1 200`.
const STATUS_BYTES: usize = 12;

/// What is asked, and what is made of the answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The path of the GET.
    pub path: String,
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
    pub(super) async fn look_at(&self, endpoint: &Endpoint) {
        let mut address = endpoint.address;
        address.set_port(self.port.unwrap_or(address.port()));
        let well = tokio::time::timeout(self.timeout, ask(address, &self.path)).await.unwrap_or(false);
        if endpoint.checked(well, self) {
            tracing::warn!(address = %endpoint.address, well, "an address of an upstream changed its health");
        }
    }
}

/// Whether the answer is 2xx. Whatever goes wrong is no such answer.
async fn ask(address: SocketAddr, path: &str) -> bool {
    let asking = async {
        let mut stream = TcpStream::connect(address).await?;
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: tollhouse\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut status = [0; STATUS_BYTES];
        stream.read_exact(&mut status).await?;
        Ok::<_, std::io::Error>(status)
    };
    asking.await.is_ok_and(|status| status.starts_with(b"HTTP/1.") && status.get(8..10) == Some(b" 2"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;

    use super::*;

    #[test]
    fn so_many_bad_answers_take_an_address_out_and_so_many_good_ones_bring_it_back() {
        let check = HealthCheck {
            path: "/".to_owned(),
            port: None,
            every: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
            falls: 3,
            rises: 2,
        };
        let endpoint = Endpoint::new(([127, 0, 0, 1], 1).into(), Arc::new(Semaphore::new(1)));
        let now = Duration::from_secs(1);
        let answers = [false, false, true, false, false, false, true, false, true, true];
        let up = [true, true, true, true, true, false, false, false, false, true];
        for (answer, up) in answers.into_iter().zip(up) {
            endpoint.checked(answer, &check);
            assert_eq!(endpoint.is_up(now), up);
        }
    }
}
