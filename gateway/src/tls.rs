//! Certificates of the edge: opening what the control plane sealed.
//!
//! A handshake chooses by SNI: the replica's certificate for exactly this name, else the platform's wildcard when it
//! covers the name. Nothing is issued, asked or waited for while a client waits.

pub(crate) mod challenge;
mod open;

pub use open::CertificateOpener;
