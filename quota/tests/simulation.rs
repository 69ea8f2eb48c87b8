//! Thousands of simulated worlds in which everything around the quota ledger goes wrong. Many more:
//! `cargo run --release -p quota --example simulation -- --seeds 100000`.

#[path = "../examples/simulation/simulation.rs"]
mod simulation;

/// Worlds per test: four tests take some twenty seconds without optimisation, less in parallel.
const SEEDS: u64 = 500;

/// Runs a quarter of the worlds, and the first seed of the next quarter.
fn no_world_of_a_quarter_breaks_a_promise(quarter: u64) {
    let total = simulation::run_all(quarter * SEEDS..=(quarter + 1) * SEEDS);
    assert!(total.is_ok(), "{}", total.err().map(|broken| broken.to_string()).unwrap_or_default());
    let enough = total.as_ref().is_ok_and(|total| total.admitted > 2_500 && total.refused > 2_500);
    assert!(enough, "too little happened");
}

// rule: 8.1
#[test]
fn no_world_of_the_first_quarter_breaks_a_promise() {
    no_world_of_a_quarter_breaks_a_promise(0);
}

// rule: 8.1
#[test]
fn no_world_of_the_second_quarter_breaks_a_promise() {
    no_world_of_a_quarter_breaks_a_promise(1);
}

// rule: 8.1
#[test]
fn no_world_of_the_third_quarter_breaks_a_promise() {
    no_world_of_a_quarter_breaks_a_promise(2);
}

// rule: 8.1
#[test]
fn no_world_of_the_fourth_quarter_breaks_a_promise() {
    no_world_of_a_quarter_breaks_a_promise(3);
}

// rule: 8.1
#[test]
fn no_world_with_sixty_five_a_hundred_or_a_thousand_nodes_breaks_a_promise() {
    for (nodes, seeds) in [(65, 8), (100, 8), (1_000, 2)] {
        let total = simulation::run_fleets(0..=seeds - 1, nodes);
        assert!(total.is_ok(), "{nodes} nodes, {}", total.err().map(|broken| broken.to_string()).unwrap_or_default());
        assert!(
            total.is_ok_and(|total| total.admitted > 300 && total.refused > 0),
            "{nodes} nodes: too little happened"
        );
    }
}
