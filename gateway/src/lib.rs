//! The edge of Tollhouse: the life of a request, told once. The list of modules below has the lowest first: each uses only
//! those above it in the list.
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

pub mod fields;
pub mod grpc;
pub mod request;
pub mod usage;
pub mod overload;
pub(crate) mod damage;
pub(crate) mod place;
pub mod clock;
pub mod tls;
pub mod upstreams;
pub mod replica;
pub mod keys;
pub mod facts;
pub mod decorate;
pub mod answer;
pub mod vouch;
pub mod keyring;
pub mod recent;
pub mod platform_certificate;
pub mod telemetry;
pub mod forward;
pub mod config;
pub mod pipeline;
pub mod gateway;
pub mod exchange;
pub mod admin;
pub mod server;
