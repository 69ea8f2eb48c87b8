//! A way to a server whose open connections can fall silent, as when a NAT forgets them or a virtual address keeps them on a
//! node that is lost: nothing comes through any more and nothing is closed, while new connections work.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// See the module. It ends with the test's runtime.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    silence: watch::Sender<()>,
}

impl Relay {
    pub(crate) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Self { address: listener.local_addr().unwrap(), silence: watch::Sender::new(()) };
        let silence = relay.silence.clone();
        tokio::spawn(async move {
            let mut flows = tokio::task::JoinSet::new();
            while let Ok((outside, _)) = listener.accept().await {
                flows.spawn(pass(outside, to, silence.subscribe()));
            }
        });
        relay
    }

    /// All connections that are open fall silent.
    pub(crate) fn silence(&self) {
        self.silence.send_replace(());
    }
}

async fn pass(mut outside: TcpStream, to: SocketAddr, mut silence: watch::Receiver<()>) {
    let Ok(mut inside) = TcpStream::connect(to).await else { return };
    tokio::select! {
        biased;
        _ = silence.changed() => {}
        _ = copy_bidirectional(&mut outside, &mut inside) => return,
    }
    // Both stay open, and nobody reads.
    std::future::pending::<()>().await;
}
