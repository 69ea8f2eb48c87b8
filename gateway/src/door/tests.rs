//! The door with sockets: streams over memory pipes with a clock that the tests move, listeners on loopback, and a real
//! proxy behind them.

mod backend;
mod certificates;
mod http1;
mod http2;
mod listeners;
mod proxied;
mod requests;
mod rig;
mod slow;
mod tls;
