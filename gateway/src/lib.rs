//! The edge of Tollhouse: the life of a request, told once. The list of modules below has the lowest first: each uses only
//! those above it in the list.
//!
//! A client connects to the [`listener`], which bounds connections, finishes the TLS handshake with a certificate from
//! `tls` and lets through only well-formed heads. Whichever version brought it, the `exchange` takes the request from its
//! head to its log line, a keyed POST over HTTP/1 as much as a GET over HTTP/2: it makes a `request::EdgeRequest` of it and
//! asks the `pipeline` of the `gateway`: whose host, who is calling, what may they still spend, where does it go. What is
//! learnt on the way stands in `facts`; what the gateway says itself is an `answer`, and every refusal is a [`Rejection`](contract::rejection::Rejection). A
//! request that goes on is rewritten by `forward`, with what `vouch` says of the caller, and sent to one of the
//! `upstreams`, its body as it comes; every response passes `decorate`; `telemetry` counts it and writes one line.
//!
//! The knowledge behind the stages is in the `replica` (sites, projects, `keys`, certificates) and in the [`quota`]
//! ledger. [`config`] says what to run, [`server`] puts it together, `admin` answers the operator, from what is
//! `recent` among other things.

mod fields;
mod grpc;
mod request;
mod usage;
mod overload;
mod damage;
mod place;
mod clock;
mod tls;
mod upstreams;
mod replica;
mod keys;
mod facts;
mod decorate;
mod answer;
mod vouch;
mod keyring;
mod recent;
mod platform_certificate;
mod telemetry;
mod forward;
pub mod config;
mod pipeline;
mod gateway;
mod exchange;
mod admin;
pub mod server;
pub mod fuzzing;
