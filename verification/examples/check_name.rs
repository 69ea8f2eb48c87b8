//! Checks over the network whether a name's DNS points at a target:
//! `cargo run -p verification --example check_name -- www.example.com target.example.net`.

use chassis::clock::SystemClock;
use contract::hostname::Hostname;
use verification::DnsConfig;
use verification::collect::{Subject, collect};
use verification::facts::Claim;
use verification::verdict::{Expectation, judge};
use verification::wire::WireDns;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut names = std::env::args().skip(1);
    let (Some(name), Some(target)) = (names.next(), names.next()) else {
        anyhow::bail!("usage: check_name DOMAIN CNAME_TARGET, for example www.example.com target.example.net");
    };
    let (name, target) = (Hostname::parse(&name)?, Hostname::parse(&target)?);
    let (config, claim) = (DnsConfig::default(), Claim::Open);
    let subject = Subject { name: &name, registrable: &name, target: &target, claim, caa: false };
    let facts = collect(&WireDns::new(&config)?, &config, &SystemClock::new(), &subject).await;
    let expected =
        Expectation { name: &name, target: &target, edge: &[], text: "not asked for", claim, authorities: &[] };
    let judged = judge(&facts, &expected);
    println!("{}", if judged.passes() { "It points at the target only." } else { "It does not point at the target:" });
    for problem in judged.problems {
        println!("{}\n  {}", problem.message, problem.fix);
    }
    Ok(())
}
