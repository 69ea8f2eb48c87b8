//! Certificates of the edge: opens the sealed bundles of the control plane.
//!
//! A handshake chooses by SNI: the replica's certificate for exactly this name, else the platform's wildcard if it
//! covers the name. A handshake never waits for an order or a request.

pub(crate) mod challenge;
mod open;

pub use open::CertificateOpener;
