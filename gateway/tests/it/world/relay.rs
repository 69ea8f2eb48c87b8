//! A relay to a server that can silence its open connections, as when a NAT forgets them or a virtual address keeps
//! them on a lost node: no byte passes and no connection closes, while new connections work. It can also reset them at
//! the next byte, as a restarted NAT does.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The fate of open connections.
#[derive(Clone, Copy)]
enum Fate {
    Silence,
    Reset,
}

/// A relay on loopback. It ends with the test's runtime.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    fate: watch::Sender<Fate>,
}

impl Relay {
    pub(crate) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Self { address: listener.local_addr().unwrap(), fate: watch::Sender::new(Fate::Silence) };
        let fate = relay.fate.clone();
        tokio::spawn(async move {
            let mut flows = tokio::task::JoinSet::new();
            while let Ok((outside, _)) = listener.accept().await {
                flows.spawn(pass(outside, to, fate.subscribe()));
            }
        });
        relay
    }

    /// All connections that are open fall silent.
    pub(crate) fn silence(&self) {
        self.fate.send_replace(Fate::Silence);
    }

    /// All connections that are open are reset when something is sent over them.
    pub(crate) fn forget(&self) {
        self.fate.send_replace(Fate::Reset);
    }
}

async fn pass(mut outside: TcpStream, to: SocketAddr, mut fate: watch::Receiver<Fate>) {
    let Ok(mut inside) = TcpStream::connect(to).await else { return };
    tokio::select! {
        biased;
        _ = fate.changed() => {}
        _ = copy_bidirectional(&mut outside, &mut inside) => return,
    }
    if matches!(*fate.borrow(), Fate::Reset) {
        let _ = outside.readable().await;
        let _ = socket2::SockRef::from(&outside).set_linger(Some(std::time::Duration::ZERO));
        return;
    }
    // Both connections stay open and unread.
    std::future::pending::<()>().await;
}
