//! Building blocks that every process of Tollhouse uses.
//!
//! None of them depends on what a process does. [`config`] reads settings and reports all mistakes together; [`clock`]
//! provides the time; [`logs`], [`metrics`] and [`trace`] report what happens; [`health`] and [`admin`] serve the
//! operator; [`serve`] accepts and drains HTTP, [`body`] reads request bodies, [`shutdown`] stops the process; [`peer`]
//! connects one process to another, [`certificate`] judges certificates, [`guard`] admits only requests from the
//! gateway; [`secret`] and [`seal`] protect secrets; [`sql`] is the interface to the database, [`sqlite`] or
//! [`postgres`], and [`backup`] copies it; [`supervise`] restarts background tasks that panic, [`watchdog`] detects a
//! stuck runtime; [`durable`] makes file names that survive a power failure; [`json`] parses untrusted JSON;
//! [`percent`] escapes text in URLs; [`names`] looks up servers; [`network`] defines one client; [`openapi`] has
//! operations and describes them, [`reference`](mod@reference) for people; [`webhook`] signs and sends messages to
//! customers.

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
pub mod openapi;
pub mod reference;
pub mod shutdown;
pub mod supervise;
pub mod shares;
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
