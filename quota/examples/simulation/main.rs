//! Runs the quota ledger through simulated worlds: `cargo run --release -p quota --example simulation -- --seeds
//! 100000`. A seed that breaks a promise is printed and replays with `--seed`.

#[path = "simulation.rs"]
mod simulation;

use std::process::ExitCode;

use clap::Parser;

/// What to run.
#[derive(Parser)]
struct Arguments {
    /// Run this one world and print its result.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Number of worlds to run.
    #[arg(long, default_value_t = 100_000)]
    seeds: u64,
    /// Number of nodes in each world.
    #[arg(long)]
    nodes: Option<usize>,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = match arguments.seed {
        Some(seed) => seed..=seed,
        None => arguments.from..=arguments.from.saturating_add(arguments.seeds.saturating_sub(1)),
    };
    let outcome = match arguments.nodes {
        Some(nodes) => simulation::run_fleets(seeds, nodes),
        None => simulation::run_all(seeds),
    };
    match outcome {
        Ok(total) => println!("{total}"),
        Err(broken) => {
            println!("{broken}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
