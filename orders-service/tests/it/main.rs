//! The orders-service over HTTP, as the gateway, operators and crashes meet it.

mod crash;
mod faults;
mod internal;
mod list;
mod pets;
mod races;
mod v1;
mod v2;
mod world;
