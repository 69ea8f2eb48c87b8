//! The promises, in the customer's words, against the real program: `tollhouse up` as a process, TLS, real keys.

mod command_line;
mod durability;
mod limits;
mod orders;
mod own_service;
mod secrets;
mod visitors;
mod world;
