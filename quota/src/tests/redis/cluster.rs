//! A Cluster, and a master behind Sentinel that fails over.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::faults::minute;
use super::nodes::{Nodes, within_one_minute, without_bans};
use super::server::ask;
use super::*;
use crate::settings::OnStoreDown;
use crate::store::StoreOutage;

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_serves_buckets_from_all_its_servers_and_survives_one() {
    a_cluster_that_loses_a_master(Redis::kill, "yes").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_master_is_replaced_by_its_replica_although_other_masters_answer() {
    a_cluster_that_loses_a_master(|server| server.freeze(), "no").await;
}

async fn a_cluster_that_loses_a_master(lose: impl FnOnce(&mut Redis), full_coverage: &str) {
    let options = [
        "--cluster-enabled",
        "yes",
        "--cluster-node-timeout",
        "500",
        "--repl-diskless-sync-delay",
        "0",
        "--cluster-require-full-coverage",
        full_coverage,
    ];
    let mut servers: Vec<Redis> = (0..6).map(|_| Redis::with(&options)).collect();
    let addresses: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
    let mut create = vec!["--cluster", "create"];
    create.extend(addresses.iter().map(String::as_str));
    create.extend(["--cluster-replicas", "1", "--cluster-yes"]);
    let created = ask(servers[0].port, &create);
    assert!(created.contains("All 16384 slots covered"), "{created}");
    let good = |port: u16| ask(port, &["CLUSTER", "INFO"]).contains("cluster_state:ok");
    eventually("the Cluster is good", async || servers.iter().all(|server| good(server.port))).await;
    let ports: Vec<u16> = servers.iter().map(|server| server.port).collect();
    let nodes = Nodes::start(&ports, RedisMode::Cluster, 3, |settings| {
        without_bans(settings);
        settings.call_budget = Duration::from_millis(500);
        settings.on_store_down = OnStoreDown::Deny;
    })
    .await;
    // Buckets of every server; each exact.
    for number in 0..12 {
        within_one_minute(&format!("cluster-{number}"), async |project| {
            let minutes = nodes.burst(&project, limits(60, 10_000), 200).await;
            assert!(minutes.iter().all(|(_, admitted)| *admitted <= 60), "{minutes:?}");
            let [(_, admitted)] = minutes.as_slice() else { return None };
            assert_eq!(*admitted, 60);
            Some(())
        })
        .await;
    }
    let with_buckets = servers.iter().filter(|server| !server.ask(&["KEYS", "tollhouse:bucket:*"]).is_empty()).count();
    assert!(with_buckets >= 3, "{with_buckets} servers have buckets");
    // Bans reach every node through any server.
    nodes.all[0].ban(&key(5), UnixSeconds(4_000_000_000)).unwrap();
    eventually("bans are shared", async || nodes.all.iter().all(|node| node.bans().len() == 1)).await;
    let in_step = |server: &Redis| {
        let replication = server.ask(&["INFO", "replication"]);
        replication.contains("role:master") || replication.contains("master_link_status:up")
    };
    eventually("every replica is in step", async || servers.iter().all(in_step)).await;
    // A master is lost; its replica takes over; buckets of all servers are counted again.
    let master = servers.iter().position(|server| server.ask(&["ROLE"]).starts_with("master")).unwrap();
    let lost = servers[master].port;
    lose(&mut servers[master]);
    let alive = servers.iter().enumerate().find(|(number, _)| *number != master).unwrap().1.port;
    eventually("the Cluster has healed", async || {
        let masters = ask(alive, &["CLUSTER", "NODES"]);
        good(alive) && masters.lines().any(|line| line.contains(&format!(":{lost}@")) && line.contains("fail"))
    })
    .await;
    eventually("every bucket is counted again", async || {
        let mut good = true;
        for number in 0..12 {
            let project: ProjectUid = format!("healed-{number}").parse().unwrap();
            good &= nodes.all[number % 3].charge(&project, limits(1_000, 10_000), &key(1)).await.is_ok();
        }
        good
    })
    .await;
}

// promise: faults.5
#[tokio::test(flavor = "multi_thread")]
async fn behind_sentinel_the_new_master_is_found() {
    let mut master = Redis::start();
    let replica = Redis::with(&["--replicaof", "127.0.0.1", &master.port.to_string()]);
    eventually("the replica is in step", async || {
        replica.ask(&["INFO", "replication"]).contains("master_link_status:up")
    })
    .await;
    // Sentinel keeps its state in its configuration file.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sentinel.conf");
    let text = format!(
        "sentinel monitor tollhouse 127.0.0.1 {} 1\nsentinel down-after-milliseconds tollhouse 300\n\
         sentinel failover-timeout tollhouse 2000\n",
        master.port
    );
    std::fs::write(&file, text).unwrap();
    let sentinel = Redis::sentinel(&file);
    eventually("Sentinel knows the replica", async || {
        sentinel.ask(&["SENTINEL", "replicas", "tollhouse"]).contains(&replica.port.to_string())
    })
    .await;
    let nodes = Nodes::start(&[sentinel.port], RedisMode::Sentinel, 2, |settings| {
        settings.call_budget = Duration::from_millis(200);
        settings.on_store_down = OnStoreDown::Deny;
    })
    .await;
    let project: ProjectUid = "sentinel".parse().unwrap();
    for node in &nodes.all {
        assert!(node.charge(&project, limits(1_000, 10_000), &key(1)).await.is_ok());
    }
    master.kill();
    eventually("the nodes count at the new master", async || {
        let mut good = true;
        for node in &nodes.all {
            good &= node.charge(&project, limits(1_000, 10_000), &key(1)).await.is_ok();
        }
        good && replica.ask(&["ROLE"]).starts_with("master")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_is_half_moved_is_counted_at_its_new_server() {
    a_half_moved_slot_is_counted_at_its_new_server(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_is_half_moved_is_counted_at_a_server_without_slots() {
    a_half_moved_slot_is_counted_at_its_new_server(true).await;
}

async fn a_half_moved_slot_is_counted_at_its_new_server(is_empty: bool) {
    let mut servers = cluster_of_three().await;
    let nodes = two_nodes(&servers).await;
    if is_empty {
        join_empty(&mut servers, &[]).await;
    }
    within_one_minute("half-moved", async |project| {
        let (slot, from, to) = begin_move(&servers, &project);
        let connections = || {
            to.ask(&["INFO", "stats"]).lines().find_map(|line| {
                line.strip_prefix("total_connections_received:").map(|count| count.trim().parse::<u32>().unwrap())
            })
        };
        let before = connections().unwrap();
        let minutes = nodes.burst(&project, limits(60, 10_000), 200).await;
        // Each question of this test is a connection.
        let most = if is_empty { 4 } else { 2 };
        assert!(connections().unwrap() - before <= most, "the gateways kept their connections");
        assert_eq!(to.ask(&["CLUSTER", "COUNTKEYSINSLOT", &slot]), "1");
        for server in [from, to] {
            assert_eq!(server.ask(&["CLUSTER", "SETSLOT", &slot, "STABLE"]), "OK");
        }
        let [(_, admitted)] = minutes.as_slice() else { return None };
        assert_eq!(*admitted, 60);
        Some(())
    })
    .await;
}

// promise: faults.8
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_while_it_receives_its_first_slot_grants_no_unit_twice() {
    a_receiving_server_that_restarts_grants_no_unit_twice(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiving_server_that_restarts_is_noticed_although_the_topology_is_new() {
    a_receiving_server_that_restarts_grants_no_unit_twice(true).await;
}

async fn a_receiving_server_that_restarts_grants_no_unit_twice(topology_is_new: bool) {
    let mut servers = cluster_of_three().await;
    let nodes = two_nodes(&servers).await;
    join_empty(&mut servers, &[]).await;
    let limits = limits(60, 10_000);
    within_one_minute("restarted", async |project| {
        let (slot, ..) = begin_move(&servers, &project);
        let began = minute(&servers[0]);
        let mut admitted = 0;
        for _ in 0..40 {
            admitted += u32::from(nodes.all[0].charge(&project, limits, &key(1)).await.is_ok());
        }
        // No unspent unit is left to hand back: no statement repeats the spent ones by chance.
        eventually("unspent units are returned", async || {
            let record = nodes.all[0].usage(&project).await;
            matches!(record, Ok(Some(record)) if record.minute != began || record.day_charged == u64::from(admitted))
        })
        .await;
        servers[3].kill();
        if topology_is_new {
            // Both nodes lose a member, and discover everything again.
            servers[0].ask(&["CLIENT", "KILL", "TYPE", "normal"]);
            eventually("both nodes are connected again", async || {
                servers[0].ask(&["CLIENT", "LIST", "TYPE", "normal"]).matches("cmd=evalsha").count() == nodes.all.len()
            })
            .await;
        }
        servers[3].restart();
        // The node that spent less could be granted the units of the other.
        eventually("the server counts again", async || {
            let outcome = nodes.all[1].charge(&project, limits, &key(1)).await;
            admitted += u32::from(outcome.is_ok());
            matches!(outcome, Ok(_) | Err(ChargeError::Exceeded { .. }))
        })
        .await;
        for _ in 0..100 {
            admitted += u32::from(nodes.all[1].charge(&project, limits, &key(1)).await.is_ok());
        }
        for server in &servers {
            server.ask(&["CLUSTER", "SETSLOT", &slot, "STABLE"]);
        }
        if minute(&servers[0]) != began {
            return None;
        }
        assert!(admitted <= 60, "{admitted} of 60");
        Some(())
    })
    .await;
}

#[tokio::test]
async fn a_slow_connection_to_a_server_without_slots_is_no_outage_of_the_store() {
    let mut servers = cluster_of_three().await;
    let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let shown = front.local_addr().unwrap().port().to_string();
    join_empty(&mut servers, &["--cluster-announce-port", &shown]).await;
    let settings = settings_for(&[servers[0].port], RedisMode::Cluster);
    let budget = settings.call_budget;
    let project: ProjectUid = "slow".parse().unwrap();
    begin_move(&servers, &project);
    let answering = tokio::spawn(answer_late_and_no_statement(front, servers[3].port, budget / 5));
    let store = store(&[servers[0].port], RedisMode::Cluster, 1).await;
    // The caller's limit, as in `Quota`.
    let answer = tokio::time::timeout(budget, store.execute(&project, need_one(1))).await;
    assert_eq!(answer, Ok(Err(StoreOutage::Part)));
    answering.abort();
}

/// Passes connections on to a server after `delay`. A connection ends with the first statement.
async fn answer_late_and_no_statement(front: TcpListener, port: u16, delay: Duration) {
    loop {
        let (mut client, _) = front.accept().await.unwrap();
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (mut from_client, mut to_client) = client.split();
            let (mut from_server, mut to_server) = server.split();
            let asking = async {
                let mut piece = vec![0; 65_536];
                while let Ok(count @ 1..) = from_client.read(&mut piece).await {
                    if piece[..count].windows(7).any(|word| word == b"EVALSHA") {
                        std::future::pending::<()>().await;
                    }
                    to_server.write_all(&piece[..count]).await.unwrap();
                }
            };
            let answering = tokio::io::copy(&mut from_server, &mut to_client);
            tokio::select! { () = asking => {} _ = answering => {} }
        });
    }
}

const CLUSTER: [&str; 4] = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];

fn is_good(server: &Redis) -> bool {
    server.ask(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
}

fn id(server: &Redis) -> String {
    server.ask(&["CLUSTER", "MYID"])
}

async fn cluster_of_three() -> Vec<Redis> {
    let servers: Vec<Redis> = (0..3).map(|_| Redis::with(&CLUSTER)).collect();
    let addresses: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
    let mut create = vec!["--cluster", "create"];
    create.extend(addresses.iter().map(String::as_str));
    create.push("--cluster-yes");
    let created = ask(servers[0].port, &create);
    assert!(created.contains("All 16384 slots covered"), "{created}");
    eventually("the Cluster is good", async || servers.iter().all(is_good)).await;
    servers
}

/// Adds a server without slots.
async fn join_empty(servers: &mut Vec<Redis>, options: &[&str]) {
    let new = Redis::with(&[&CLUSTER, options].concat());
    assert_eq!(new.ask(&["CLUSTER", "MEET", "127.0.0.1", &servers[0].port.to_string()]), "OK");
    servers.push(new);
    let ids: Vec<String> = servers.iter().map(id).collect();
    eventually("the new server is known", async || {
        servers.iter().all(|server| {
            let known = server.ask(&["CLUSTER", "NODES"]);
            is_good(server) && ids.iter().all(|id| known.contains(id))
        })
    })
    .await;
}

async fn two_nodes(servers: &[Redis]) -> Nodes {
    let ports: Vec<u16> = servers.iter().map(|server| server.port).collect();
    Nodes::start(&ports, RedisMode::Cluster, 2, |settings| {
        without_bans(settings);
        settings.call_budget = Duration::from_millis(500);
        settings.on_store_down = OnStoreDown::Deny;
    })
    .await
}

/// Begins to move a project's slot, which has no keys yet, so that its server says where new keys are. Returns the slot,
/// its server, and the last other one: that has no slots, if it is a new one.
fn begin_move<'a>(servers: &'a [Redis], project: &ProjectUid) -> (String, &'a Redis, &'a Redis) {
    let slot = servers[0].ask(&["CLUSTER", "KEYSLOT", &format!("tollhouse:bucket:{{{project}}}")]);
    let from = servers.iter().find(|server| owns(server, &slot)).unwrap();
    let to = servers.iter().rfind(|server| server.port != from.port).unwrap();
    assert_eq!(to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]), "OK");
    assert_eq!(from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]), "OK");
    (slot, from, to)
}

/// Whether a server of a Cluster serves a slot.
fn owns(server: &Redis, slot: &str) -> bool {
    let slot: u32 = slot.parse().unwrap();
    let nodes = server.ask(&["CLUSTER", "NODES"]);
    let mine = nodes.lines().find(|line| line.contains("myself")).unwrap();
    mine.split(' ').skip(8).any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse(), last.parse()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
    })
}
