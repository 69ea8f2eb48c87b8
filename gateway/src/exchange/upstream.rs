//! The upstream's side of a request: one connection, the request on its way there and the response on its way back.

pub(crate) mod connection;
pub(crate) mod http2;
pub(crate) mod relay;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod trailers;
pub(crate) mod upload;
