//! What the processes of Tollhouse agree on.
//!
//! Data that crosses a process boundary, and the pure rules that both sides must apply alike: how a hostname is
//! written, how an API key is checked, when a window ends, how an identity is signed. No I/O, no clock, no runtime:
//! times and random bytes are arguments.
//!
//! Reading order: names ([`hostname`], [`project`]), money ([`plan`], [`window`]), people ([`key`], [`ban`],
//! [`identity`], [`token`]), what the edge serves ([`site`], [`certificate`], [`browsers`]), how it learns ([`feed`]) and what it tells back
//! ([`usage`]), whom services believe ([`trust`]), what is told to customers ([`event`]), and how a refusal is written ([`error`], and the edge's [`rejection`]s).

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
pub mod identity;
pub mod token;
pub mod trust;
pub mod keyring;
pub mod feed;
pub mod event;
pub mod usage;
