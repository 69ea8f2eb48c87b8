//! Listeners with sockets: streams over memory pipes with a clock that the tests control, listeners on loopback, and a
//! small service behind them.

pub(crate) mod attacks;
mod certificates;
mod http1;
mod http2;
mod listeners;
mod requests;
mod rig;
mod served;
mod slow;
mod tls;
