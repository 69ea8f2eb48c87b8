//! Thousands of simulated worlds in which everything around the quota ledger goes wrong. Many more:
//! `cargo run --release -p gateway --example quota_simulation -- --seeds 100000`.

#[path = "../examples/quota_simulation/simulation.rs"]
mod simulation;

/// Worlds of one test run: as many as fit into some twenty seconds without optimisation.
const SEEDS: u64 = 2_000;

// rule: 8.1
#[test]
fn no_world_breaks_a_promise() {
    match simulation::run_all(0..=SEEDS) {
        Ok(total) => assert!(total.admitted > 10_000 && total.refused > 10_000, "too little happened: {total}"),
        Err(broken) => panic!("{broken}"),
    }
}
