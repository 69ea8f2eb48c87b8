//! Opens a listening socket, or takes over the one of the previous process.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use pingora::server::ListenFds;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::net::TcpListener;

/// Silence after which the kernel probes the client.
const KEEPALIVE_AFTER: Duration = Duration::from_mins(1);
/// Pause between probes; the connection ends after nine without an answer.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
/// Bytes of a connection that the kernel buffers before sending. Without this bound it buffers megabytes for a client
/// that reads nothing, and more whenever memory is free again, which resembles a client that reads.
const UNSENT_MAX: u32 = 128 * 1024;

/// A listening socket for `address`, entered into `fds` for the next process.
pub(super) fn listen(address: SocketAddr, backlog: i32, fds: Option<&ListenFds>) -> io::Result<TcpListener> {
    // Port 0 asks for a new port each time: two such listeners must not share one entry.
    let Some(fds) = fds.filter(|_| address.port() != 0) else {
        return listener_of(fresh(address, backlog)?);
    };
    let key = address.to_string();
    let mut fds = fds.lock();
    let listener = match fds.get(&key).copied() {
        Some(inherited) => {
            let listener = listener_of(take_over(inherited)?)?;
            // The table closes its own descriptor, so that the socket closes when our listener does.
            let others: HashSet<String> = fds.serialize().0.into_iter().filter(|name| *name != key).collect();
            fds.close_unclaimed(&others);
            listener
        }
        None => listener_of(fresh(address, backlog)?)?,
    };
    fds.add(key, listener.as_raw_fd());
    Ok(listener)
}

/// The listener of a listening socket, with the options that accepted connections inherit. Options are also set on an
/// inherited socket, because the previous process may have set others.
fn listener_of(socket: Socket) -> io::Result<TcpListener> {
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT_MAX)?;
    // Probes detect clients that vanished silently, which an idle WebSocket would never notice.
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY))?;
    TcpListener::from_std(socket.into())
}

/// `[::]` listens on IPv6 and IPv4; on a machine without IPv6, on IPv4.
fn fresh(address: SocketAddr, backlog: i32) -> io::Result<Socket> {
    let is_everybody = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    match bound(address, is_everybody, backlog) {
        Err(error) if is_everybody && has_no_ipv6(&error) => {
            bound((Ipv4Addr::UNSPECIFIED, address.port()).into(), false, backlog)
        }
        other => other,
    }
}

/// Whether the kernel has no IPv6, or no IPv6 address may be used.
fn has_no_ipv6(error: &io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    matches!(errno, Some(rustix::io::Errno::AFNOSUPPORT | rustix::io::Errno::ADDRNOTAVAIL))
}

fn bound(address: SocketAddr, both_versions: bool, backlog: i32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if both_versions {
        socket.set_only_v6(false)?;
    }
    // A restart must not wait for connections of the previous run.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    Ok(socket)
}

/// An owned descriptor for a socket known only by its number. Trusting a bare number needs `unsafe`. Instead, the
/// kernel duplicates it through a pidfd of this process, and fails if the number is not open.
fn take_over(inherited: i32) -> io::Result<Socket> {
    let ourselves = pidfd_open(getpid(), PidfdFlags::empty())?;
    let socket = Socket::from(pidfd_getfd(&ourselves, inherited, PidfdGetfdFlags::empty())?);
    if !socket.is_listener()? {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the inherited descriptor is not a listening socket"));
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use pingora::server::Fds;
    use socket2::SockRef;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpSocket, TcpStream};

    use super::*;

    const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    #[tokio::test]
    async fn a_socket_is_handed_from_one_process_to_the_next() {
        let fds: ListenFds = Arc::new(Mutex::new(Fds::new()));
        // A socket without options, as a supervisor may pass it.
        let first = std::net::TcpListener::bind(ANY_PORT).unwrap();
        let bound = first.local_addr().unwrap();
        // The successor finds a descriptor under the address's name, as if it came from another process.
        let inherited = std::os::fd::IntoRawFd::into_raw_fd(first);
        fds.lock().add(bound.to_string(), inherited);

        let second = listen(bound, 16, Some(&fds)).unwrap();
        assert_eq!(second.local_addr().unwrap(), bound);
        assert_eq!(fds.lock().get(&bound.to_string()), Some(&second.as_raw_fd()));
        let mut client = TcpStream::connect(bound).await.unwrap();
        let (mut served, _) = second.accept().await.unwrap();
        let options = SockRef::from(&served);
        assert!(options.tcp_nodelay().unwrap() && options.keepalive().unwrap(), "connections inherit them");
        assert_eq!(options.tcp_notsent_lowat().unwrap(), UNSENT_MAX);
        served.write_all(b"x").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'x');

        drop(second);
        let refused = TcpStream::connect(bound).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "no forgotten descriptor keeps the socket open");
    }

    // promise: edge.26
    #[tokio::test]
    async fn the_kernel_buffers_little_for_a_client_that_reads_nothing() {
        let listener = listen(ANY_PORT, 16, None).unwrap();
        let client = TcpSocket::new_v4().unwrap();
        client.set_recv_buffer_size(4_096).unwrap();
        let _client = client.connect(listener.local_addr().unwrap()).await.unwrap();
        let (served, _) = listener.accept().await.unwrap();
        served.writable().await.unwrap();
        let mut taken = 0;
        // Until the kernel takes no more. The bytes it sent are in the client's small buffer.
        while let Ok(bytes) = served.try_write(&[b'x'; 16 * 1024]) {
            taken += bytes;
        }
        assert!((1..=3 * 128 * 1024).contains(&taken), "{taken} bytes");
    }

    #[tokio::test]
    async fn listeners_on_port_0_get_different_ports() {
        let fds: ListenFds = Arc::new(Mutex::new(Fds::new()));
        let (first, second) = (listen(ANY_PORT, 16, Some(&fds)).unwrap(), listen(ANY_PORT, 16, Some(&fds)).unwrap());
        assert_ne!(first.local_addr().unwrap(), second.local_addr().unwrap());
        assert!(fds.lock().is_empty(), "a port that the kernel chose is not inherited");
    }

    #[tokio::test]
    async fn the_unspecified_address_takes_both_ip_versions() {
        let listener = listen((Ipv6Addr::UNSPECIFIED, 0).into(), 16, None).unwrap();
        let bound = listener.local_addr().unwrap();
        let mut ways = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        if bound.is_ipv6() {
            ways.push(Ipv6Addr::LOCALHOST.into());
        }
        for way in ways {
            let (client, served) = tokio::join!(TcpStream::connect((way, bound.port())), listener.accept());
            assert_eq!(served.unwrap().1.ip().to_canonical(), way);
            drop(client.unwrap());
        }
        let refused = io::Error::from_raw_os_error(rustix::io::Errno::AFNOSUPPORT.raw_os_error());
        assert!(has_no_ipv6(&refused) && !has_no_ipv6(&io::ErrorKind::AddrInUse.into()));
    }

    #[tokio::test]
    async fn an_address_in_use_is_an_error() {
        let first = listen(ANY_PORT, 16, None).unwrap();
        let error = listen(first.local_addr().unwrap(), 16, None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
