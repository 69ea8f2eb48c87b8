//! The control plane over HTTP: requests in, answers and the change stream out, with fakes for its neighbours.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail a test by panicking, as tests do"
)]

mod acme;
mod certificates;
mod change_limits;
mod dashboard;
mod domains;
mod enrolment;
mod feed;
mod gateways;
mod http;
mod identities;
mod internal_access;
mod keys;
mod openapi;
mod operators;
mod panics;
mod postgres;
mod processes;
mod projects;
mod redirects;
mod removal;
mod removed_projects;
mod rows;
mod scopes;
mod sealing;
mod services;
mod stolen;
mod stores;
mod verification;
mod webhooks;
mod withdrawals;
mod world;
