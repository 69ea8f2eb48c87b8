//! Peers with the same names and certificates, one file for each name, with the settings of `bench/peers`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use super::process::Process;
use super::{LOADING_MAX, POLL, chosen, name};
use crate::fleet::free_address;

/// The measured peers: names and arguments.
const KNOWN: &[(&str, &[&str])] = &[("nginx", &["-c"]), ("haproxy", &["-db", "-f"])];

/// The peers that `SCALE_PEERS` names.
pub(super) fn wanted() -> Vec<(&'static str, &'static [&'static str])> {
    let named = chosen("SCALE_PEERS").unwrap_or_default();
    let known = |word: &str| {
        *KNOWN.iter().find(|(name, _)| *name == word).unwrap_or_else(|| panic!("no peer is called {word}"))
    };
    named.split_whitespace().map(known).collect()
}

/// Writes a file with chain and key for each domain, and the list of them.
pub(super) fn write_certificates(folder: &Path, domains: u32, pem: &str) {
    let mut list = String::new();
    std::fs::create_dir(folder.join("certificates")).unwrap();
    for domain in (0..domains).map(name) {
        let file = folder.join("certificates").join(&domain);
        std::fs::write(&file, pem).unwrap();
        writeln!(list, "{} {domain}", file.display()).unwrap();
    }
    std::fs::write(folder.join("list"), list).unwrap();
}

/// Starts a peer; returns it when it accepts connections, and the time that took.
pub(super) async fn start(folder: &Path, (program, words): (&str, &[&str])) -> (Process, Duration) {
    let https = free_address();
    let template = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../bench/peers/domains-{program}.conf"));
    let text = std::fs::read_to_string(template).unwrap();
    let text = text.replace("WORK", folder.to_str().unwrap()).replace("ADDRESS", &https.to_string());
    let configuration = folder.join(program);
    std::fs::write(&configuration, text).unwrap();
    let began = Instant::now();
    let process = Process::start(program, words, &configuration, https);
    let ready = async {
        while TcpStream::connect(https).await.is_err() {
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(LOADING_MAX, ready).await.unwrap_or_else(|_| panic!("{program} does not listen"));
    (process, began.elapsed())
}
