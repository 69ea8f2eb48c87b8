//! What every process of Tollhouse bolts on.
//!
//! Nothing here knows what a process does: [`config`] reads settings and reports every mistake at once, [`clock`]
//! hands in the time, [`logs`] and [`metrics`] tell what happens, [`health`] and [`admin`] answer the operator,
//! [`serve`] accepts and drains HTTP, [`body`] reads what a request carries, [`shutdown`] ends it, [`routes`] lists what it offers, [`peer`] is the way from one process to another, [`guard`] lets in only what came through the gateway,
//! [`secret`] and [`seal`] keep secrets, [`sql`] speaks to the database, [`sqlite`] or [`postgres`], [`backup`] copies it,
//! [`trace`] tells a collector where the time went, [`watchdog`] notices a runtime that is
//! stuck, [`durable`] makes names that a power failure leaves, [`json`] reads what others wrote, [`percent`] escapes what goes into a URL, [`names`] looks up servers, [`network`] says what counts as one client, [`openapi`] has what interface descriptions share, [`webhook`] signs and sends what customers want to be told.

pub mod admin;
pub mod backup;
pub mod body;
pub mod clock;
pub mod config;
pub mod durable;
pub mod guard;
pub mod health;
pub mod json;
pub mod logs;
pub mod metrics;
pub mod names;
pub mod network;
pub mod openapi;
mod origin;
pub mod peer;
pub mod percent;
pub mod postgres;
#[cfg(test)]
#[path = "../tests/support/power.rs"]
mod power;
pub mod process;
pub mod random;
pub mod refusal;
pub mod routes;
pub mod running;
pub mod seal;
pub mod secret;
pub mod serve;
pub mod shutdown;
pub mod sql;
pub mod sqlite;
pub mod trace;
pub mod watchdog;
pub mod webhook;
