//! Everything at once: draws of two or three faults among a few operations, on a platform of real processes, against a
//! model of what may be served, counted and said.
//!
//! A seed gives a schedule. A schedule that breaks a promise is shrunk, and printed with the command that repeats it.
//! `bench/run everything` runs thousands.
//!
//! Needs `redis-server`, `pebble`, `libfaketime` and PostgreSQL's programs, and the programs of the workspace. Only root can
//! fill a disk; without root, the faults that do so are left out, and the output says so.

#[cfg(test)]
mod ask;
#[cfg(test)]
mod broken;
#[cfg(test)]
#[path = "../../../quota/src/tests/redis/clock.rs"]
mod clock;
#[cfg(test)]
#[expect(dead_code, reason = "replies are lost elsewhere")]
#[path = "../../../gateway/tests/it/fleet/fault_proxy.rs"]
mod fault_proxy;
#[cfg(test)]
mod faults;
#[cfg(test)]
#[expect(dead_code, reason = "the campaign of single faults uses the rest")]
#[path = "../fleet/fleet.rs"]
mod fleet;
#[cfg(test)]
mod model;
#[cfg(test)]
mod processor;
#[cfg(test)]
#[expect(dead_code, reason = "the simulation of the quota uses the rest")]
#[path = "../../../quota/examples/simulation/random.rs"]
mod random;
#[cfg(test)]
mod run;
#[cfg(test)]
mod said;
#[cfg(test)]
mod schedule;
#[cfg(test)]
mod world;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use tokio::runtime::Runtime;

    use crate::broken::Broken;
    use crate::faults::Part;
    use crate::processor::Times;
    use crate::run::Run;
    use crate::schedule::Schedule;
    use crate::world::{World, say_what_is_left_out};

    /// The draws in `./check`, which take less than a minute together and have each kind of fault.
    const SEEDS: [u64; 8] = [5, 6, 10, 12, 16, 17, 20, 24];

    /// Then a platform is replaced, before its disks are full.
    const DRAWS_OF_A_PLATFORM: u64 = 100;

    /// Platforms in `./check`: draws wait more than they compute.
    const PLATFORMS: u64 = 3;

    /// Schedules that once broke a promise.
    const FOUND: [&str; 1] = ["store-clock.behind@0-2 | spend read"];

    /// Times that a schedule begins again.
    const STARVED_MAX: u32 = 5;

    /// Attempts at a smaller schedule, which may fail only sometimes.
    const ATTEMPTS: usize = 2;

    /// A number from the environment: `bench/run everything` sets it.
    #[expect(clippy::disallowed_methods, reason = "how long a test is, not a setting of a process")]
    fn number(variable: &str, usual: u64) -> u64 {
        std::env::var(variable).map_or(usual, |text| text.parse().expect("a whole number"))
    }

    /// Whether this is not `./check`, which has little time.
    fn is_long() -> bool {
        number("TOGETHER_RUNS", 0) > 0
    }

    #[expect(clippy::disallowed_methods, reason = "what a test runs, not a setting of a process")]
    fn given() -> Option<Schedule> {
        std::env::var("TOGETHER_SCHEDULE").ok().map(|text| text.parse().unwrap())
    }

    // promise: faults.28
    #[test]
    fn no_draw_of_faults_breaks_a_promise() {
        say_what_is_left_out();
        let (runs, first) = (number("TOGETHER_RUNS", 0), number("TOGETHER_SEED", 1));
        let seeds = if is_long() { (first..first + runs).collect() } else { SEEDS.to_vec() };
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..number("TOGETHER_PLATFORMS", PLATFORMS) {
                scope.spawn(|| Runtime::new().unwrap().block_on(draw_on_a_platform(&seeds, &next)));
            }
        });
        println!("{} draws from seed {}: no promise broken.", seeds.len(), seeds[0]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_schedule_that_was_found_breaks_a_promise_again() {
        let mut world = World::start(false).await;
        for text in FOUND {
            let outcome = carry_out_with_a_processor(&mut world, &text.parse().unwrap()).await;
            assert_eq!(outcome, Ok(()), "{text}");
        }
    }

    /// Takes seeds until there are none left.
    async fn draw_on_a_platform(seeds: &[u64], next: &AtomicUsize) {
        let mut world = World::start(is_long()).await;
        for count in 1_u64.. {
            let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)).copied() else { return };
            let schedule = given().unwrap_or_else(|| Schedule::draw(seed, world.is_root));
            let began = Instant::now();
            if let Err(error) = carry_out_with_a_processor(&mut world, &schedule).await {
                // The other platforms finish their draws.
                next.store(seeds.len(), Ordering::Relaxed);
                drop(world);
                panic!("{}", report(seed, schedule, error).await);
            }
            println!("seed {seed}: {schedule} ({:.1} s)", began.elapsed().as_secs_f64());
            // The control plane leaves an authority that failed alone for a while.
            let would_wait = !is_long() && schedule.has(|what| what.part == Part::Authority);
            if would_wait || count.is_multiple_of(DRAWS_OF_A_PLATFORM) {
                drop(world);
                world = World::start(is_long()).await;
            }
        }
    }

    /// A failure of processes that the machine hardly let run says nothing: the schedule begins again.
    async fn carry_out_with_a_processor(world: &mut World, schedule: &Schedule) -> Result<(), Broken> {
        let mut starved = 0;
        loop {
            let before = Times::of(&world.fleet.ids());
            let outcome = Run::carry_out(world, schedule).await;
            let is_starved = Times::of(&world.fleet.ids()).are_starved_since(&before);
            match outcome {
                Err(error) if is_starved && starved < STARVED_MAX => println!("the machine is too busy: {error}"),
                outcome => return outcome,
            }
            starved += 1;
            *world = World::start(is_long()).await;
        }
    }

    /// Shrinks a schedule that breaks a promise, on new platforms, to one that breaks the same promise.
    async fn report(seed: u64, mut schedule: Schedule, mut error: Broken) -> String {
        let drawn = schedule.clone();
        eprintln!("seed {seed}: {schedule}: {error}");
        'smaller: while is_long() {
            for smaller in schedule.smaller() {
                for _ in 0..ATTEMPTS {
                    match carry_out_with_a_processor(&mut World::start(is_long()).await, &smaller).await {
                        Err(again) if again.promise == error.promise => {
                            eprintln!("still: {smaller}: {again}");
                            (schedule, error) = (smaller, again);
                            continue 'smaller;
                        }
                        _ => {}
                    }
                }
            }
            break;
        }
        format!(
            "seed {seed}: {drawn}\nshrunk to: {schedule}\n{error}\nrepeat: bench/run everything 1 {seed}, or \
             TOGETHER_SCHEDULE='{schedule}' bench/run everything 1"
        )
    }
}
