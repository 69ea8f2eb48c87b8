//! The edge of Tollhouse: the life of a request, told once, with the modules in this order.
//!
//! A client connects to the [`listener`], which bounds connections, finishes the TLS handshake with a certificate from
//! [`tls`] and lets through only well-formed heads. Whichever version brought it, the [`exchange`] takes the request from its
//! head to its log line, a keyed POST over HTTP/1 as much as a GET over HTTP/2: it makes a [`request::EdgeRequest`] of it and
//! asks the [`pipeline`] of the [`gateway`]: whose host, who is calling, what may they still spend, where does it go. What is
//! learnt on the way stands in [`facts`]; what the gateway says itself is an [`answer`], and every refusal is a [`Rejection`](contract::rejection::Rejection). A
//! request that goes on is rewritten by [`forward`], with what [`vouch`] says of the caller, and sent to one of the
//! [`upstreams`], its body as it comes; every response passes [`decorate`]; [`telemetry`] counts it and writes one line.
//!
//! The knowledge behind the stages is in the [`replica`] (sites, projects, [`keys`], certificates) and in the [`quota`]
//! ledger. [`config`] says what to run, [`server`] puts it together, [`admin`] answers the operator, from what is
//! [`recent`] among other things.

pub mod config;
pub mod server;

pub mod tls;

pub mod exchange;
pub mod gateway;
pub mod request;

pub mod pipeline;

pub mod answer;
pub mod facts;

pub mod decorate;
pub mod forward;

pub mod clock;
pub(crate) mod damage;
pub mod keyring;
pub mod keys;
pub mod overload;
pub(crate) mod place;
pub mod replica;
pub mod upstreams;
pub mod vouch;

pub mod admin;
pub mod recent;
pub mod telemetry;
pub mod usage;
