//! All gateways stop and start together; one hangs and ends itself.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::*;

/// In every other round they end as in a power cut.
// promise: faults.19
#[tokio::test(flavor = "multi_thread")]
async fn gateways_that_all_restart_at_once_keep_their_counts_and_stay_exact() {
    let rounds = extent("FLEET_RESTARTS", 4);
    let limits = [(500, 1_000_000), (1_000_000, 100_000_000)];
    let mut fleet = Fleet::patient(3, &limits, "on_store_down = \"deny\"", "1s").await;
    let (mut limited, mut slowest) = (Outcome::default(), Duration::ZERO);
    for round in 0..rounds {
        limited.add(fleet.burst(0, 300).await);
        let asked_before = fleet.control.asked_after().len();
        for node in &mut fleet.nodes {
            if round % 2 == 0 { node.process.kill() } else { node.process.terminate() }
        }
        for node in &mut fleet.nodes {
            assert!(round % 2 == 0 || node.process.ended().await.success());
        }
        let began = Instant::now();
        for number in 0..fleet.nodes.len() {
            fleet.nodes[number].process = fleet.launch(number, 0).0;
        }
        for number in 0..fleet.nodes.len() {
            fleet.serves(number).await;
        }
        slowest = slowest.max(began.elapsed());
        fleet.burst(1, 300).await.only(&[200]);
        let (asked, known) = (fleet.control.asked_after(), fleet.control.revision());
        let again = &asked[asked_before..];
        assert!(again.len() >= 3 && again.iter().all(|after| *after == known), "a snapshot was asked for: {again:?}");
        assert_eq!(fleet.control.refused(), 0, "a mark was lost");
    }
    limited.add(fleet.burst(0, 1_000).await);
    println!("{rounds} restarts of all gateways: all serve {slowest:?} later at the latest; {limited:?}");
    limited.only(&[200, 429]);
    assert!(limited.total() > 0 && limited.admitted.values().all(|admitted| *admitted <= 500), "{limited:?}");
}

/// The places that have a part of a tenant's bucket.
fn places(fleet: &Fleet, tenant: usize) -> usize {
    let names = fleet.redis.ask(&["HKEYS", &format!("tollhouse:bucket:{{p{tenant}}}")]);
    names.lines().filter(|name| *name != "record").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_gateway_counts_for_its_place_and_one_over_a_copied_directory_for_a_new_one() {
    let limits = [(1_000_000, 100_000_000)];
    let mut fleet = Fleet::patient(2, &limits, "on_store_down = \"deny\"", "1s").await;
    let mut total = fleet.burst(0, 200).await.total();
    for round in 0..3 {
        for number in 0..2 {
            fleet.nodes[number].process.terminate();
            assert!(fleet.nodes[number].process.ended().await.success(), "a clean end");
            if round == 2 && number == 1 {
                fleet.nodes[0].process.terminate();
                assert!(fleet.nodes[0].process.ended().await.success(), "a clean end");
                // As when a machine is cloned: the file fits the directory that it came to.
                let directory =
                    |number: usize| fleet.directory.path().join(format!("data-{}", fleet.nodes[number].admin.0.port()));
                let place = |number: usize| std::fs::read_to_string(directory(number).join("place")).unwrap();
                let cloned = format!("{} {}", &place(1)[..16], &place(0)[17..]);
                std::fs::write(directory(0).join("place"), cloned).unwrap();
                std::fs::copy(directory(1).join("place-starts"), directory(0).join("place-starts")).unwrap();
                fleet.nodes[0].process = fleet.launch(0, 0).0;
            }
            fleet.nodes[number].process = fleet.launch(number, 0).0;
            fleet.serves(number).await;
        }
        fleet.serves(0).await;
        let outcome = fleet.burst(0, 200).await;
        outcome.only(&[200]);
        total += outcome.total();
        assert_eq!(places(&fleet, 0), if round == 2 { 3 } else { 2 });
    }
    eventually("all that was not spent is handed back", async || {
        (fleet.day_charged(0) == u64::from(total)).then_some(())
    })
    .await;
    eventually("a directory has a new identity, and the log names it", async || {
        let logs = fleet.nodes.iter().map(|node| std::fs::read_to_string(&node.log).unwrap());
        logs.map(|log| log.matches("uses a copy of this data directory").count()).sum::<usize>().eq(&1).then_some(())
    })
    .await;
}

/// Stopped threads of another process while its others run, which needs a debugger's interface.
struct Stuck(Vec<Pid>);

impl Stuck {
    /// All threads of this name.
    fn hold(process: u32, name: &str) -> Self {
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().map(|thread| thread.unwrap().path());
        let named = threads.filter(|thread| std::fs::read_to_string(thread.join("comm")).unwrap().trim() == name);
        let number = |thread: &std::path::Path| thread.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let held: Vec<_> = named.map(|thread| Pid::from_raw(number(&thread))).collect();
        assert!(!held.is_empty(), "a thread called {name}");
        for thread in &held {
            ptrace::seize(*thread, ptrace::Options::empty()).unwrap();
            ptrace::interrupt(*thread).unwrap();
        }
        Self(held)
    }

    /// Whether all of them have died. The kernel keeps a dead thread, and its process, until its tracer waits for it.
    fn are_gone(&mut self) -> bool {
        self.0.retain(|thread| {
            let seen = waitpid(*thread, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG));
            !matches!(seen, Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(Errno::ECHILD))
        });
        self.0.is_empty()
    }
}

// promise: faults.22
#[tokio::test]
async fn a_stuck_gateway_logs_it_ends_and_starts_again() {
    let mut fleet = Fleet::start(1, &[(1_000, 100_000)], "").await;
    let mut stuck = Stuck::hold(fleet.nodes[0].process.0.id(), "https");
    eventually("the threads are gone", async || stuck.are_gone().then_some(())).await;
    let status = fleet.nodes[0].process.ended().await;
    assert_eq!(status.signal(), Some(Signal::SIGABRT as i32), "{status}");
    let said = std::fs::read_to_string(&fleet.nodes[0].log).unwrap();
    for words in ["a runtime does not respond; requests", "a runtime is blocked; ending the process"] {
        let line = said.lines().find(|line| line.contains(words)).expect(words);
        assert!(line.contains("\"runtime\":\"https\""), "{line}");
    }
    fleet.nodes[0].process = fleet.launch(0, 0).0;
    fleet.serves(0).await;
    fleet.burst(0, 50).await.only(&[200]);
}
