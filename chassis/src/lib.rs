//! What every process of Tollhouse bolts on.
//!
//! Nothing here knows what a process does: [`config`] reads settings and reports every mistake at once, [`clock`]
//! hands in the time, [`logs`] and [`metrics`] tell what happens, [`health`] and [`admin`] answer the operator,
//! [`serve`] accepts and drains HTTP, [`body`] reads what a request carries, [`shutdown`] ends it, [`routes`] lists what it offers, [`peer`] is the way from one process to another, [`certificate`] what it shows there, [`guard`] lets in only what came through the gateway,
//! [`secret`] and [`seal`] keep secrets, [`sql`] speaks to the database, [`sqlite`] or [`postgres`], [`backup`] copies it,
//! [`trace`] tells a collector where the time went, [`watchdog`] notices a runtime that is
//! stuck, [`durable`] makes names that a power failure leaves, [`json`] reads what others wrote, [`percent`] escapes what goes into a URL, [`names`] looks up servers, [`network`] says what counts as one client, [`openapi`] has what interface descriptions share, [`webhook`] signs and sends what customers want to be told.

pub mod random;
pub mod durable;
pub mod process;
pub mod percent;
pub mod json;
pub mod names;
pub mod network;
pub mod health;
pub mod logs;
pub mod metrics;
pub mod clock;
pub mod secret;
pub mod certificate;
pub mod seal;
pub mod refusal;
pub mod routes;
pub mod openapi;
pub mod shutdown;
pub mod body;
pub mod config;
pub mod peer;
pub mod running;
mod origin;
pub mod backup;
pub mod sqlite;
pub mod postgres;
pub mod sql;
pub mod trace;
pub mod serve;
pub mod watchdog;
pub mod guard;
pub mod admin;
pub mod webhook;
#[cfg(test)]
#[path = "../tests/support/power.rs"]
mod power;
