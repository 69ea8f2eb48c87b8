//! The shape of the test world in a program without it. No value of these types exists, except the command that is
//! refused.

use std::path::Path;
use std::str::FromStr;

use contract::hostname::Hostname;

/// How to get it.
const HOW: &str = "this tollhouse was built without the test world: start with `./up --test-world`, or build with \
                   `cargo build --release --features test-world`";

/// Where the real one keeps what its certificates are trusted by.
pub(crate) const ROOT: &str = "";

/// How the authority behaves.
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

/// Any words: they are all refused.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Dns {
    /// Needs a build with the test world.
    #[command(external_subcommand)]
    Any(Vec<String>),
}

/// Says how to get it.
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
