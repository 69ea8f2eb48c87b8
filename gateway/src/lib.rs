//! The edge of Tollhouse. The modules below are listed lowest first: each uses only those above it.
//!
//! A client connects to the [`listener`], which bounds connections, finishes the TLS handshake with a certificate from
//! the [`replica`] and passes on only well-formed heads. For either HTTP version, `exchange` takes a request from its
//! head to its log line: it asks the `pipeline` for the site, the caller, the quota and the upstream. `facts` collects
//! the results; the gateway's own responses are `answer`s, and every refusal is a
//! [`Rejection`](contract::rejection::Rejection). `forward` rewrites an accepted request, with the caller's identity
//! from `identity`, and the exchange sends it to one of the [`upstreams`], with its body as it arrives; every response
//! passes `decorate`; `telemetry` counts it and writes one line.
//!
//! The data of the stages is in the [`replica`] (sites, projects, keys, certificates) and in the [`quota`] ledger.
//! [`config`] has the settings, [`server`] builds the gateway, and `admin` answers the operator, also from `recent`.

mod grpc;
mod request_id;
mod request;
mod usage;
mod overload;
mod place;
mod clock;
mod facts;
mod decorate;
mod answer;
mod identity;
mod keyring;
mod recent;
mod platform_certificate;
mod telemetry;
mod forward;
pub mod config;
mod pipeline;
mod exchange;
mod admin;
pub mod server;
pub mod fuzzing;
