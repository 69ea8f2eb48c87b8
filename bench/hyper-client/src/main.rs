//! hyper's client of HTTP/1.1 beside the gateway's own, for `bench/run hyper-client`.
//!
//!     hyper_client rows                      what both make of the responses of the tests
//!     hyper_client serve                     an upstream for `send`; prints its address
//!     hyper_client send CLIENT ADDRESS COUNT   sends COUNT requests with `ours` or `hyper`

mod ours;
#[path = "../../../gateway/tests/it/upstream_responses.rs"]
mod responses;
mod rows;
mod server;
mod theirs;

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};

use anyhow::bail;

use self::ours::OurClient;
use self::theirs::HyperClient;

/// A request.
#[derive(Clone, Copy)]
struct Ask {
    method: &'static str,
    body_bytes: usize,
}

const GET: Ask = Ask { method: "GET", body_bytes: 0 };

/// Fields of a browser's request.
const FIELDS: [(&str, &str); 5] = [
    ("host", "shop.example"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
    ("accept", "application/json"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "en-GB,en;q=0.5"),
];

/// The body of the upstream of `serve`.
const BODY_BYTES: usize = 100;

/// What a client got.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reply {
    /// The head for the gateway's client; empty if the response was refused.
    head: Vec<u8>,
    body: Vec<u8>,
    /// The response is complete.
    whole: bool,
}

/// A client of one upstream, which keeps its connections.
enum Client {
    Ours(OurClient),
    Hyper(HyperClient),
}

impl Client {
    fn new(name: &str, upstream: SocketAddr) -> anyhow::Result<Self> {
        Ok(match name {
            "ours" => Self::Ours(OurClient::new(upstream)?),
            "hyper" => Self::Hyper(HyperClient::new(upstream)),
            _ => bail!("{name} is not ours or hyper"),
        })
    }

    /// Sends the request `count` times, one after the other; returns the last reply.
    async fn send(&mut self, ask: Ask, count: usize) -> anyhow::Result<Reply> {
        match self {
            Self::Ours(client) => client.send(ask, count).await,
            Self::Hyper(client) => client.send(ask, count).await,
        }
    }
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match arguments[..] {
        ["rows"] => runtime.block_on(rows::compare()),
        ["serve"] => serve(),
        ["send", name, address, count] => {
            let (mut client, count) = (Client::new(name, address.parse()?)?, count.parse()?);
            let reply = runtime.block_on(client.send(GET, count))?;
            anyhow::ensure!(reply.whole && reply.body.len() == BODY_BYTES, "{reply:?}");
            Ok(())
        }
        _ => bail!("unknown arguments; see the head of main.rs"),
    }
}

/// Answers every request alike, until the process is ended.
fn serve() -> anyhow::Result<()> {
    let fields = "Content-Type: application/json\r\nDate: Tue, 14 Nov 2023 22:13:20 GMT\r\nETag: \"5f3759df\"";
    let response =
        format!("HTTP/1.1 200 OK\r\n{fields}\r\nContent-Length: {BODY_BYTES}\r\n\r\n{}", "x".repeat(BODY_BYTES));
    let address = server::upstream(move |_| {
        let response = response.clone();
        move |stream: &mut TcpStream| stream.write_all(response.as_bytes())
    })?;
    println!("{address}");
    loop {
        std::thread::park();
    }
}
