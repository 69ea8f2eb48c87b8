//! A damaged file of the replica.

use super::{follows, refuses};
use crate::world::client::Ask;
use crate::world::entities::site;
use crate::world::{BLOG, ORDERS, SHOP, World, eventually};

/// Kinds of damage to a file: another file, a part of it, wrong bytes at its start or throughout.
fn damaged(good: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let wrong_from = |from: usize, step: usize| {
        let mut bytes = good.to_vec();
        bytes.iter_mut().skip(from).step_by(step).for_each(|byte| *byte ^= 0x5a);
        bytes
    };
    let cut = |part: usize| good[..good.len() / part].to_vec();
    vec![
        ("another file", b"no database".to_vec()),
        ("its first half", cut(2)),
        ("its first page", cut(good.len() / 4_096)),
        ("zeroes", vec![0; good.len()]),
        ("wrong from the start", wrong_from(0, 1)),
        ("wrong behind the head", wrong_from(512, 1)),
        ("one byte of 64 wrong", wrong_from(64, 64)),
    ]
}

#[tokio::test]
async fn a_damaged_file_is_renamed_and_the_gateway_starts_empty() {
    let mut world = World::start().await;
    let replica = world.data("replica.redb");
    let stop = async |world: &mut World| {
        world.begin_stop();
        world.stopped().await.expect("a clean end");
    };
    stop(&mut world).await;
    for (damage, bytes) in damaged(&std::fs::read(&replica).unwrap()) {
        std::fs::write(&replica, &bytes).unwrap();
        std::fs::write(world.data("place"), &bytes).unwrap();
        world.run().await;
        world.is_ready().await;
        assert_eq!(world.ask(world.list()).await.status, 200, "{damage}");
        let kept = ["place", "replica.redb"].map(|name| world.data(&format!("{name}.damaged")));
        for file in &kept {
            assert!(std::fs::read(file).unwrap() == bytes, "{damage}: {} has the damaged contents", file.display());
        }
        for name in ["place", "replica.redb"] {
            world.admin.counts(&format!("edge_damaged_file{{file=\"{name}\"}}"), 1).await;
        }
        let (_, status) = world.admin.get("/status").await;
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        assert_eq!(status["damaged_files"], serde_json::json!(["place.damaged", "replica.redb.damaged"]));
        for name in ["place.damaged", "replica.redb.damaged"] {
            std::fs::remove_file(world.data(name)).unwrap();
        }
        world.admin.counts("edge_damaged_file{file=\"place\"}", 0).await;
        stop(&mut world).await;
    }
}

/// The file with a byte changed wherever `is_its` says so of what is before and after it.
fn with_bytes_changed(good: &[u8], is_its: impl Fn(&[u8], &[u8]) -> bool) -> Vec<u8> {
    let mut bytes = good.to_vec();
    let found: Vec<usize> = (1..good.len()).filter(|at| is_its(&good[..*at], &good[*at..])).collect();
    assert!(!found.is_empty(), "the file contains it");
    for at in found {
        bytes[at] ^= 1;
    }
    bytes
}

async fn is_renamed(world: &World) {
    let damaged = world.data("replica.redb.damaged");
    eventually("the damaged file is renamed", async || damaged.exists().then_some(())).await;
    world.admin.counts("edge_damaged_file{file=\"replica.redb\"}", 1).await;
    std::fs::remove_file(damaged).unwrap();
}

#[tokio::test]
async fn a_changed_byte_in_the_replica_is_found_at_the_start_and_repaired_by_a_snapshot() {
    let mut world = World::start().await;
    let replica = world.data("replica.redb");
    // A word in the values of all projects, and the name under which a site and a certificate are stored.
    for text in ["\"access\"", SHOP] {
        world.begin_stop();
        world.stopped().await.expect("a clean end");
        let good = std::fs::read(&replica).unwrap();
        let bytes = with_bytes_changed(&good, |before, from| {
            from.starts_with(text.as_bytes()) && (text != SHOP || !before.ends_with(b"\""))
        });
        std::fs::write(&replica, bytes).unwrap();
        world.run().await;
        is_renamed(&world).await;
        assert_eq!(world.ask(world.list()).await.status, 200, "{text}");
        assert_eq!(world.ask(Ask::get(SHOP, ORDERS).key(&world.key.text)).await.status, 200, "{text}");
        assert_eq!(world.ask(Ask::get(BLOG, "/")).await.status, 200, "{text}");
        follows(&world).await;
    }
    // Changes arrive in the new file, and it is good at the next start.
    world.control.put(site("late.tollhouse.localhost", "blog")).await;
    world.begin_stop();
    world.stopped().await.expect("a clean end");
    world.run().await;
    world.is_ready().await;
    assert_eq!(world.ask(Ask::get("late.tollhouse.localhost", "/")).await.status, 200);
    assert!(!world.data("replica.redb.damaged").exists());
}

#[tokio::test]
async fn without_a_control_plane_a_damaged_entity_is_named_and_the_others_are_served() {
    let mut world = World::start().await;
    let replica = world.data("replica.redb");
    world.control.die().await;
    world.begin_stop();
    world.stopped().await.expect("a clean end");
    // The upstream's name in the project of the blog.
    let good = std::fs::read(&replica).unwrap();
    let upstream = b"\"upstream\":\"";
    let bytes = with_bytes_changed(&good, |before, from| before.ends_with(upstream) && from.starts_with(b"blog"));
    std::fs::write(&replica, bytes).unwrap();
    world.run().await;
    let why = refuses(&world).await;
    assert!(why.contains("the local replica is damaged"), "{why}");
    assert_eq!(world.ask(world.list()).await.status, 200);
    assert_ne!(world.ask(Ask::get(BLOG, "/")).await.status, 200);
    world.control.revive();
    is_renamed(&world).await;
    eventually("the blog is served", async || (world.ask(Ask::get(BLOG, "/")).await.status == 200).then_some(())).await;
    follows(&world).await;
}
