//! The interface of the test world in a build without it. No value of these types exists, except the command, which is
//! refused.

use std::path::Path;
use std::str::FromStr;

use contract::hostname::Hostname;

/// The error.
const HOW: &str = "this tollhouse was built without the test world: start with `./up --test-world`, or build with \
                   `cargo build --release --features test-world`";

/// The CA certificate of the test world's authority.
pub(crate) const ROOT: &str = "";

/// Behaviour of the authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorityMode {}

impl FromStr for AuthorityMode {
    type Err = &'static str;

    fn from_str(_: &str) -> Result<Self, &'static str> {
        Err(HOW)
    }
}

impl std::fmt::Display for AuthorityMode {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}

/// Any arguments; all are refused.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Dns {
    /// Needs a build with the test world.
    #[command(external_subcommand)]
    Any(Vec<String>),
}

/// Always fails.
pub(crate) fn carry_out(_: &Path, _: Dns) -> anyhow::Result<String> {
    Err(anyhow::Error::msg(HOW))
}

/// The running test world.
pub(crate) enum TestWorld {}

#[expect(clippy::unused_async, reason = "the shape of the real one")]
impl TestWorld {
    pub(crate) async fn start(_: &Path, _: &Hostname, mode: AuthorityMode) -> anyhow::Result<Self> {
        match mode {}
    }

    pub(crate) fn settings(&self) -> String {
        match *self {}
    }

    pub(crate) async fn open(&mut self, _: &Path, _: (u16, u16)) -> anyhow::Result<()> {
        match *self {}
    }

    pub(crate) fn zones(&self) -> &Path {
        match *self {}
    }
}
