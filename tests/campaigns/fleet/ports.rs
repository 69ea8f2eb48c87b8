//! Ports that no other process of this machine gets meanwhile.

use std::net::SocketAddr;

use anyhow::Context as _;
use socket2::{Domain, Socket, Type};

/// Ports of the processes on 127.0.0.1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) https: [u16; 2],
    pub(crate) admin: [u16; 2],
    pub(crate) control: u16,
    pub(crate) orders: u16,
    pub(crate) prometheus: u16,
    pub(crate) http: [u16; 2],
    pub(crate) redis: u16,
    pub(super) postgres: u16,
    pub(super) orders_http: u16,
    pub(super) orders_admin: u16,
    pub(super) domains_http: u16,
    pub(super) domains_admin: u16,
}

/// Ports that only this fleet uses.
pub(super) fn ports(reserved: &mut Vec<Socket>) -> anyhow::Result<Ports> {
    let mut next = || reserve(reserved);
    Ok(Ports {
        https: [next()?, next()?],
        admin: [next()?, next()?],
        control: next()?,
        orders: next()?,
        prometheus: next()?,
        http: [next()?, next()?],
        redis: next()?,
        postgres: next()?,
        orders_http: next()?,
        orders_admin: next()?,
        domains_http: next()?,
        domains_admin: next()?,
    })
}

/// A free port, kept for a server, which sets `SO_REUSEADDR` and so can still listen there.
pub(super) fn reserve(reserved: &mut Vec<Socket>) -> anyhow::Result<u16> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    socket.set_reuse_address(true)?;
    let port = socket.local_addr()?.as_socket().context("an address")?.port();
    reserved.push(socket);
    Ok(port)
}
