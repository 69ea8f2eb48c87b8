//! Long lines: relays that deliver each byte later, at any rate, for systems whose kernel has no `netem`.
//!
//! TCP sees two short connections, so a line shows what round trips and the windows of HTTP/2 cost, not what the
//! congestion control of TCP does.

use std::io;
use std::time::Duration;

use anyhow::Context as _;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Buffer size for one read.
const READ_BYTES: usize = 256 * 1024;

/// Pieces on their way in one direction.
const PIECES_MAX: usize = 1_024;

/// Serves lines, each as `PORT=ADDRESS`, with this delay each way.
pub(crate) async fn serve(lines: &[&str], delay: Duration) -> anyhow::Result<()> {
    let mut served = JoinSet::new();
    for line in lines {
        let (port, address) = line.split_once('=').context("a line is PORT=ADDRESS")?;
        let listener = TcpListener::bind(("127.0.0.1", port.parse::<u16>()?)).await?;
        served.spawn(accept(listener, address.to_owned(), delay));
    }
    served.join_next().await.context("no line")??
}

async fn accept(listener: TcpListener, address: String, delay: Duration) -> anyhow::Result<()> {
    loop {
        let (near, _) = listener.accept().await?;
        let address = address.clone();
        tokio::spawn(async move {
            let far = TcpStream::connect(address).await?;
            near.set_nodelay(true)?;
            far.set_nodelay(true)?;
            let ((near_reader, near_writer), (far_reader, far_writer)) = (near.into_split(), far.into_split());
            tokio::try_join!(carry(near_reader, far_writer, delay), carry(far_reader, near_writer, delay))
        });
    }
}

/// Carries one direction to its end.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) -> io::Result<()> {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Bytes)>(PIECES_MAX);
    let reading = async move {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(READ_BYTES);
            if from.read_buf(&mut buffer).await? == 0 {
                // Only an error of the writer closes the channel earlier, and it is returned.
                let _ = sender.send((Instant::now() + delay, Bytes::new())).await;
                return Ok(());
            }
            let _ = sender.send((Instant::now() + delay, buffer.split().freeze())).await;
        }
    };
    let writing = async move {
        while let Some((due, piece)) = receiver.recv().await {
            tokio::time::sleep_until(due).await;
            to.write_all(&piece).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(reading, writing).map(|_| ())
}
