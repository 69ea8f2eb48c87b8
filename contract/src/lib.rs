//! Data and rules that the processes of Tollhouse share.
//!
//! Data that crosses a process boundary, and the pure rules that both sides must apply alike: how a hostname is
//! written, how an API key is checked, when a window ends, how an identity is signed. No I/O, no clock, no runtime:
//! times and random bytes are arguments.
//!
//! Reading order: names ([`hostname`], [`project`]); limits ([`plan`], [`window`]); callers ([`key`], [`ban`],
//! [`identity`], [`token`]); what the edge serves ([`site`], [`certificate`], [`browsers`]); how it is updated
//! ([`feed`]) and what it reports ([`usage`]); which keys services trust ([`trust`]); events for customers ([`event`]);
//! refusals ([`error`], and the edge's [`rejection`]s) and problems ([`trouble`]); and how types look in API
//! descriptions ([`schema`]).

pub mod schema;
pub mod text;
pub mod time;
pub mod window;
pub mod hostname;
pub mod browsers;
pub mod plan;
pub mod project;
pub mod key;
pub mod ban;
pub mod site;
pub mod certificate;
pub mod erasure;
pub mod error;
pub mod rejection;
pub mod trouble;
pub mod identity;
pub mod token;
pub mod trust;
pub mod keyring;
pub mod feed;
pub mod event;
pub mod usage;
