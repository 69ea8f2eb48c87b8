use chassis::clock::ManualClock;
use contract::feed::Mark;

use super::*;

fn report(node: &str, applied: u64) -> NodeReport {
    NodeReport { node: node.to_owned(), applied: Revision(applied), ..NodeReport::default() }
}

fn at_place(node: &str, place: &str, applied: u64) -> NodeReport {
    NodeReport { place: Some(place.to_owned()), ..report(node, applied) }
}

/// Processes, and the rows that the database would have.
struct World {
    clock: Arc<ManualClock>,
    nodes: Nodes,
    rows: Vec<Process>,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(UnixMillis(0)));
        Self { nodes: Nodes::new(clock.clone()), clock, rows: Vec::new() }
    }

    /// Writes the due changes of the record.
    fn write(&mut self) {
        for due in self.nodes.due() {
            let name = match &due {
                RecordChange::Write(process) => &process.report.node,
                RecordChange::Delete(name) => name,
            };
            let first = self.rows.iter().find(|row| row.report.node == *name).map(|row| row.first_seen);
            self.rows.retain(|row| row.report.node != *name);
            if let RecordChange::Write(process) = &due {
                let first_seen = first.unwrap_or(process.first_seen);
                self.rows.push(Process { first_seen, ..process.clone() });
            }
            self.nodes.recorded(&due);
        }
        self.nodes.load_record(self.rows.clone(), &HashSet::new());
    }

    fn report(&mut self, report: NodeReport) {
        self.nodes.report(report);
        self.write();
    }

    fn restart(&mut self) {
        self.nodes = Nodes::new(self.clock.clone());
        self.nodes.load_record(self.rows.clone(), &HashSet::new());
    }

    fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    fn lagging(&self, revision: u64) -> Vec<String> {
        self.nodes.status_of_all(Revision(revision)).lagging
    }
}

const SILENCE: Duration = SILENCE_MAX.saturating_add(Duration::from_millis(1));

#[test]
fn changes_wait_only_for_live_processes_and_withdrawals_for_all() {
    let mut world = World::new();
    world.report(report("a", 5));
    world.report(report("b", 3));
    let state = world.nodes.status_of_live(Revision(5));
    assert_eq!((state.asked, state.lagging), (2, vec!["b".to_owned()]));
    world.pass(SILENCE);
    world.report(report("a", 5));
    assert_eq!(world.nodes.status_of_live(Revision(5)), Acknowledged { asked: 1, lagging: Vec::new() });
    assert_eq!(world.lagging(5), ["b"], "a withdrawal waits for the silent one too");
}

#[test]
fn each_of_several_processes_with_one_credential_is_waited_for() {
    let mut world = World::new();
    for (process, applied) in [("gw/a", 5), ("gw/b", 4), ("shared", 4)] {
        world.report(report(process, applied));
    }
    assert_eq!(world.lagging(5), ["gw/b", "shared"]);
    world.pass(SILENCE);
    world.report(report("gw/a", 5));
    assert_eq!(world.lagging(5), ["gw/b", "shared"], "the live process speaks for itself alone");
    // The same after a restart, in any order of return.
    world.restart();
    assert_eq!(world.lagging(5), ["gw/b", "shared"]);
    assert_eq!(world.nodes.status_of_live(Revision(5)).lagging, ["gw/b", "shared"], "they may be on their way back");
    world.pass(RETURN_TIME + Duration::from_millis(1));
    assert_eq!(world.nodes.status_of_live(Revision(5)).lagging, Vec::<String>::new());
    world.report(report("gw/b", 6));
    assert_eq!(world.lagging(6), ["gw/a", "shared"]);
}

#[test]
fn a_wait_for_a_process_ends_with_its_goodbye_its_credential_or_a_day() {
    let mut world = World::new();
    for process in ["gw/a", "gw/b", "other/c"] {
        world.report(report(process, 1));
    }
    world.report(NodeReport { goodbye: true, ..report("gw/a", 1) });
    world.report(report("gw/a", 1));
    assert_eq!(world.lagging(5), ["gw/b", "other/c"], "a report that the goodbye has overtaken changes nothing");
    world.nodes.revoke("other");
    world.rows.retain(|row| !row.report.node.starts_with("other/"));
    assert_eq!(world.lagging(5), ["gw/b"]);
    world.restart();
    assert_eq!(world.lagging(5), ["gw/b"]);
    world.pass(Duration::from_millis(FORGOTTEN_AFTER.unsigned_abs()));
    assert_eq!(world.lagging(5), ["gw/b"]);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.lagging(5), Vec::<String>::new());
}

#[test]
fn a_goodbye_to_a_newly_started_replica_also_ends_the_wait() {
    let mut world = World::new();
    world.report(report("gw/a", 1));
    world.restart();
    world.report(NodeReport { goodbye: true, ..report("gw/a", 1) });
    assert_eq!((world.lagging(5), world.rows.len()), (Vec::new(), 0));
}

#[test]
fn a_process_over_the_same_directory_replaces_its_dead_predecessor() {
    let mut world = World::new();
    world.report(at_place("gw/old", "p", 1));
    world.pass(Duration::from_secs(1));
    world.report(at_place("gw/new", "p", 5));
    assert_eq!(world.lagging(5), ["gw/old"], "it may live still");
    world.pass(SILENCE);
    assert_eq!(world.lagging(5), Vec::<String>::new());
    world.restart();
    assert_eq!(world.lagging(5), Vec::<String>::new());
    // A process of another credential, or without a directory, is no successor.
    for other in [at_place("else/new", "p", 9), report("gw/none", 9)] {
        world.report(other);
    }
    world.pass(SILENCE);
    assert_eq!(world.lagging(9), ["gw/new"]);
}

#[test]
fn a_copy_of_a_data_directory_replaces_no_process() {
    let mut world = World::new();
    world.report(at_place("gw/one", "p", 1));
    world.pass(Duration::from_secs(30));
    world.report(at_place("gw/copy", "p", 1));
    world.pass(Duration::from_secs(6));
    // It still lives: its row is written at once, though the last write was less than a minute ago.
    world.report(at_place("gw/one", "p", 1));
    world.report(at_place("gw/copy", "p", 5));
    world.pass(SILENCE);
    assert_eq!(world.lagging(5), ["gw/one"]);
    world.restart();
    assert_eq!(world.lagging(5), ["gw/copy", "gw/one"], "the record is a minute old at most");
}

#[test]
fn a_process_is_written_once_a_minute_and_at_once_when_it_is_new() {
    let mut world = World::new();
    assert!(!world.nodes.report(report("gw/a", 1)));
    assert_eq!(world.nodes.due().len(), 1);
    world.write();
    for _ in 0..59 {
        world.pass(Duration::from_secs(1));
        assert!(world.nodes.report(report("gw/a", 1)));
        assert!(world.nodes.due().is_empty());
    }
    world.pass(Duration::from_secs(1));
    world.nodes.report(report("gw/a", 1));
    assert_eq!(world.nodes.due().len(), 1);
    // The other replica writes its own reports.
    world.nodes.report_from_replica(report("gw/b", 1), true);
    assert_eq!(world.nodes.due().len(), 1);
}

#[test]
fn a_process_that_could_not_be_written_is_waited_for() {
    let world = World::new();
    world.nodes.report(report("gw/a", 1));
    world.pass(SILENCE);
    world.nodes.load_record(Vec::new(), &HashSet::new());
    assert_eq!(world.lagging(5), ["gw/a"]);
}

#[test]
fn another_replica_has_revoked_the_credential() {
    let mut world = World::new();
    world.report(report("gw/a", 1));
    // Only that replica has its report, and has not written it.
    world.nodes.report_from_replica(report("stolen/b", 1), false);
    world.pass(SILENCE);
    assert_eq!(world.lagging(5), ["gw/a", "stolen/b"]);
    world.nodes.load_record(world.rows.clone(), &HashSet::from(["stolen".to_owned()]));
    assert_eq!(world.lagging(5), ["gw/a"]);
}

#[test]
fn confirmations_of_another_history_do_not_count() {
    let mut world = World::new();
    world.report(report("gw/a", 8));
    world.report(report("gw/b", 7));
    assert_eq!(world.lagging(7), Vec::<String>::new());
    world.nodes.invalidate_all();
    assert_eq!(world.lagging(1), ["gw/a", "gw/b"]);
    // Also in the database.
    world.write();
    world.restart();
    assert_eq!(world.lagging(1), ["gw/a", "gw/b"]);
    world.report(report("gw/a", 3));
    assert_eq!(world.lagging(3), ["gw/b"]);
}

#[test]
fn a_position_that_the_database_lacks_does_not_count_in_memory_and_on_record() {
    let mut world = World::new();
    let at = |node: &str, revision: u64, mark: u64| NodeReport { mark: Some(Mark(mark)), ..report(node, revision) };
    world.report(at("gw/a", 7, 1));
    world.report(at("gw/b", 7, 2));
    let missing = HashSet::from([at("", 7, 1).position().unwrap()]);
    let none = Vec::<String>::new();
    assert_eq!((world.lagging(7), world.nodes.positions().len()), (none.clone(), 2));
    assert_eq!(world.nodes.invalidate_at(&missing), ["gw/a"]);
    assert_eq!(world.lagging(7), ["gw/a"]);
    // A process that reported only before the restart.
    world.report(at("gw/a", 7, 1));
    world.restart();
    assert_eq!(world.lagging(7), none);
    assert_eq!(world.nodes.invalidate_at(&missing), none, "it has not reported since");
    assert_eq!(world.lagging(7), ["gw/a"]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_last_acknowledgement_or_its_time() {
    let nodes = Arc::new(Nodes::new(Arc::new(ManualClock::at(UnixMillis(0)))));
    nodes.report(report("a", 1));
    let waiting = tokio::spawn({
        let nodes = nodes.clone();
        async move { nodes.acknowledged(Revision(2), Duration::from_secs(1)).await }
    });
    tokio::task::yield_now().await;
    nodes.report(report("a", 2));
    assert_eq!(waiting.await.unwrap(), Acknowledged { asked: 1, lagging: Vec::new() });
    let late = nodes.acknowledged(Revision(3), Duration::from_secs(1)).await;
    assert_eq!(late.lagging, ["a"]);
}

#[test]
fn a_gateway_with_too_many_processes_displaces_only_its_own() {
    let clock = Arc::new(ManualClock::at(UnixMillis(0)));
    let nodes = Nodes::new(clock.clone());
    nodes.report(report("honest/gw-1", 5));
    nodes.report(report("shared/gw-2", 5));
    for index in 0..NODES_MAX * 2 {
        clock.advance(Duration::from_millis(1));
        nodes.report(report(&format!("shared/{index}"), 0));
    }
    assert_eq!(nodes.all().len(), NODES_OF_ONE_MAX + 1);
    for honest in ["honest/gw-1", "shared/gw-2"] {
        assert!(nodes.all().iter().any(|known| known.report.node == honest), "{honest}");
    }
}

#[test]
fn ended_processes_are_dropped_before_awaited_ones() {
    let mut world = World::new();
    world.report(at_place("gw/alone", "q", 1));
    for index in 0..NODES_OF_ONE_MAX * 2 {
        world.pass(SILENCE);
        assert!(world.nodes.has_room_for(&format!("gw/{index}")), "a start over the same directory takes no place");
        world.report(at_place(&format!("gw/{index}"), "p", 1));
    }
    let last = format!("gw/{}", NODES_OF_ONE_MAX * 2 - 1);
    assert_eq!(world.lagging(5), [last, "gw/alone".to_owned()]);
    // Each process has its own directory.
    let mut world = World::new();
    for index in 0..NODES_OF_ONE_MAX {
        assert!(world.nodes.has_room_for(&format!("gw/{index}")));
        world.report(report(&format!("gw/{index}"), 1));
    }
    assert!(!world.nodes.has_room_for("gw/more"));
    assert!(world.nodes.has_room_for("gw/7") && world.nodes.has_room_for("other/more"));
    world.report(NodeReport { goodbye: true, ..report("gw/7", 1) });
    assert!(world.nodes.has_room_for("gw/more"));
}

#[test]
fn the_list_is_bounded() {
    let clock = Arc::new(ManualClock::at(UnixMillis(0)));
    let nodes = Nodes::new(clock.clone());
    for index in 0..NODES_MAX + 10 {
        clock.advance(Duration::from_millis(1));
        nodes.report(report(&format!("node-{index}"), 1));
    }
    let names: Vec<String> = nodes.all().into_iter().map(|known| known.report.node).collect();
    assert_eq!(names.len(), NODES_MAX);
    assert!(names.contains(&"node-0".to_owned()) && names.contains(&format!("node-{}", NODES_MAX + 9)));
}

#[test]
fn a_wall_clock_that_steps_forward_forgets_no_gateway() {
    let mut world = World::new();
    world.report(report("gw/a", 3));
    world.clock.advance(Duration::from_mins(1));
    world.clock.jump_to(UnixMillis(25 * 3_600_000));
    assert_eq!(world.nodes.status_of_all(Revision(4)).lagging, ["gw/a"]);
    world.clock.jump_to(UnixMillis(60_000));
    world.clock.advance(Duration::from_hours(24));
    assert_eq!(world.nodes.status_of_all(Revision(4)).asked, 0, "24 hours of silence are over");
}
