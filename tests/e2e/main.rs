//! The promises, in the customer's words, against the real program: `tollhouse up` as a process, TLS, real keys.

#[cfg(test)]
mod access;
#[cfg(test)]
mod backups;
#[cfg(test)]
mod bounds;
#[cfg(test)]
#[expect(dead_code, reason = "a clock that does not step needs no file")]
#[path = "../../quota/src/tests/redis/clock.rs"]
mod clock;
#[cfg(test)]
mod command_line;
#[cfg(test)]
mod custom_domains;
#[cfg(test)]
mod deployment;
#[cfg(test)]
mod domain_commands;
#[cfg(test)]
mod durability;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod internal_tls;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod monitoring;
#[cfg(test)]
mod on_call;
#[cfg(test)]
mod order_events;
#[cfg(test)]
mod orders;
#[cfg(test)]
mod orders_at_once;
#[cfg(test)]
mod own_service;
#[cfg(test)]
mod projects;
#[cfg(test)]
mod readme;
#[cfg(test)]
mod replicas;
#[cfg(test)]
mod sealing;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod start;
#[cfg(test)]
mod stolen;
#[cfg(test)]
mod traces;
#[cfg(test)]
mod visitors;
#[cfg(test)]
mod webhook_commands;
#[cfg(test)]
mod world;
