//! The gateway as its neighbours see it: HTTP in, HTTP out, on loopback, with fakes for the control plane and the
//! upstreams. Every test starts its own gateway on its own ports and uses sockets only.

#[cfg(test)]
mod world;

#[cfg(test)]
mod addresses;
#[cfg(test)]
mod admin_tls;
#[cfg(test)]
mod attacks;
#[cfg(test)]
mod authentication;
#[cfg(test)]
mod balancers;
#[cfg(test)]
mod bodies;
#[cfg(test)]
mod browsers;
#[cfg(test)]
mod challenges;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod cookies;
#[cfg(test)]
mod data_files;
#[cfg(test)]
mod distance;
#[cfg(test)]
mod exchange;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod floods;
#[cfg(test)]
mod forwarding;
#[cfg(test)]
mod health;
#[cfg(test)]
mod hosts;
#[cfg(test)]
mod identities;
#[cfg(test)]
mod keyrings;
#[cfg(test)]
mod legal;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod measured;
#[cfg(test)]
mod observability;
#[cfg(test)]
mod output;
#[cfg(test)]
mod overload;
#[cfg(test)]
mod platform_certificate;
#[cfg(test)]
mod poison;
#[cfg(test)]
mod quotas;
#[cfg(test)]
mod redirects;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod replica;
#[cfg(test)]
mod rolling;
#[cfg(test)]
mod routes;
#[cfg(test)]
mod scale;
#[cfg(test)]
mod tenants;
#[cfg(test)]
mod trailers;
#[cfg(test)]
mod uploads;
#[cfg(test)]
mod upstream_chunks;
#[cfg(test)]
mod upstream_grpc;
#[cfg(test)]
mod upstream_grpc_web;
#[cfg(test)]
mod upstream_http2;
#[cfg(test)]
mod upstream_responses;
#[cfg(test)]
mod upstream_servers;
#[cfg(test)]
mod upstream_silence;
#[cfg(test)]
mod upstream_tls;
#[cfg(test)]
mod websockets;
#[cfg(test)]
mod websockets_http2;
