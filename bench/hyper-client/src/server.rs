//! Upstreams that send exact bytes. Each connection has a thread of its own, so that bytes arrive also while the client's
//! runtime stands still.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use crate::responses::{Dice, random_response};

/// What an upstream does after its first response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Waits for the next request.
    Waits,
    Closes,
    Resets,
    /// Sends [`SURPLUS`] when told to. `seen`: the client's runtime runs before the next request.
    SendsMore {
        seen: bool,
    },
}

/// The response to all requests but the first.
pub const USUAL: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]";

/// A response that answers no request.
pub const SURPLUS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nsurplus";

/// The text before the number of a request.
const MARK: &str = "request-";

/// An upstream with a special first response.
pub struct Scripted {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    /// Sent when the bytes were sent; disconnected when the connection is closed.
    done: Receiver<()>,
    more: SyncSender<()>,
}

impl Scripted {
    pub fn start(first: Vec<u8>, after: After) -> io::Result<Self> {
        let connections = Arc::new(AtomicUsize::new(0));
        let ((sent, done), (more, wanted)) = (sync_channel(2), sync_channel(1));
        let (count, mut script) = (connections.clone(), Some((first, sent, wanted)));
        let address = upstream(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            let mut script = script.take();
            move |stream: &mut TcpStream| {
                let Some((first, sent, wanted)) = script.take() else { return stream.write_all(USUAL) };
                // The client may refuse a part of it.
                let _ = stream.write_all(&first);
                if matches!(after, After::Closes | After::Resets) {
                    let linger = (after == After::Resets).then_some(Duration::ZERO);
                    SockRef::from(&*stream).set_linger(linger)?;
                    // Not dropped before the connection.
                    script = Some((first, sent, wanted));
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                sent.send(()).map_err(io::Error::other)?;
                if matches!(after, After::SendsMore { .. }) && wanted.recv().is_ok() {
                    let _ = stream.write_all(SURPLUS);
                    sent.send(()).map_err(io::Error::other)?;
                }
                Ok(())
            }
        })?;
        Ok(Self { address, connections, done, more })
    }

    /// Waits until everything was sent.
    pub fn is_done(&self) -> anyhow::Result<()> {
        let done = self.done.recv_timeout(Duration::from_secs(10));
        anyhow::ensure!(done != Err(RecvTimeoutError::Timeout), "the upstream has not sent its response");
        Ok(())
    }

    /// Sends [`SURPLUS`].
    pub fn send_more(&self) -> anyhow::Result<()> {
        self.more.send(())?;
        self.is_done()
    }
}

/// An upstream that answers at random, and holds back some bytes until the next request has arrived on the connection.
/// Its responses name the number of the request. Returns the number of requests so far too.
pub fn random() -> io::Result<(SocketAddr, Arc<AtomicUsize>)> {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let address = upstream(move |number| {
        let seed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (asked, mut dice, mut late) = (count.clone(), Dice(seed), Vec::new());
        move |stream: &mut TcpStream| {
            let name = format!("{MARK}{:06}", asked.fetch_add(1, Ordering::SeqCst));
            stream.write_all(&late)?;
            let mut bytes = random_response(&mut dice, &name);
            if dice.below(3) == 0 {
                bytes.extend(random_response(&mut dice, &name));
            }
            let kept = dice.below(bytes.len() as u64) as usize;
            late = if dice.below(2) == 0 { bytes.split_off(kept) } else { random_response(&mut dice, &name) };
            stream.write_all(&bytes)?;
            if dice.below(8) == 0 { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
        }
    })?;
    Ok((address, asked))
}

/// The requests that a response of [`random`] names.
pub fn marks(text: &str) -> impl Iterator<Item = usize> {
    text.split(MARK).skip(1).filter_map(|rest| rest.get(..6)?.parse().ok())
}

/// An upstream on an address of its own. `connected` returns what it does after the head of each request of a
/// connection, which has this number; an error closes the connection.
pub fn upstream<D>(mut connected: impl FnMut(usize) -> D + Send + 'static) -> io::Result<SocketAddr>
where
    D: FnMut(&mut TcpStream) -> io::Result<()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let mut answer = connected(number);
            thread::spawn(move || {
                let mut stream = BufReader::new(stream);
                while has_request(&mut stream) && answer(stream.get_mut()).is_ok() {}
            });
        }
    });
    Ok(address)
}

/// Reads the head of a request; returns whether there was one.
fn has_request(stream: &mut BufReader<TcpStream>) -> bool {
    stream.lines().map_while(Result::ok).any(|line| line.is_empty())
}
