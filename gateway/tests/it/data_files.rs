//! A start over a data directory with a wrong file: a pipe, a device, a directory, a dangling link, or a file of any
//! size.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use crate::world::{World, eventually};

/// Replaces a file with something that is not a file of bounded size.
fn put(kind: &str, path: &Path) {
    std::fs::remove_file(path).ok();
    match kind {
        "pipe" => assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success()),
        "endless device" => symlink("/dev/zero", path).unwrap(),
        "directory" => std::fs::create_dir_all(path.join("below")).unwrap(),
        "dangling link" => symlink("nothing/here", path).unwrap(),
        _ => std::fs::File::create(path).unwrap().set_len(1 << 40).unwrap(),
    }
}

/// Every file of the data directory that a start reads, and when it is written again.
const FILES: [&str; 5] = ["keyring.sealed", "place", "place-starts", "replica.redb", "usage.json"];

/// Those that only a start over Redis reads.
const FILES_OVER_REDIS: [&str; 2] = ["fleet.json", "unclaimed.json"];

#[tokio::test]
async fn a_wrong_file_type_anywhere_stops_no_start() {
    let mut world = World::start().await;
    let stop = async |world: &mut World| {
        world.begin_stop();
        world.stopped().await.expect("a clean end");
    };
    stop(&mut world).await;
    // The second directory replaces the first, which was renamed.
    for kind in ["pipe", "endless device", "directory", "directory", "dangling link", "endless file"] {
        for file in FILES.into_iter().chain(FILES_OVER_REDIS) {
            put(kind, &world.data(file));
        }
        tokio::time::timeout(Duration::from_mins(1), world.run()).await.expect(kind);
        world.is_ready().await;
        assert_eq!(world.ask(world.list()).await.status, 200, "{kind}");
        let keyring = world.data("keyring.sealed");
        let is_file = || std::fs::symlink_metadata(&keyring).is_ok_and(|facts| facts.is_file());
        eventually("the keys are kept again", async || is_file().then_some(())).await;
        stop(&mut world).await;
        for file in FILES {
            let is_file = std::fs::symlink_metadata(world.data(file)).is_ok_and(|facts| facts.is_file());
            assert!(is_file, "{kind}: {file} is written again");
            let kept = world.data(&format!("{file}.damaged"));
            assert!(kept.symlink_metadata().is_ok() || kind == "endless file", "{kind}: {file} is kept");
        }
        for file in FILES_OVER_REDIS.map(|file| world.data(file)) {
            std::fs::remove_file(&file).or_else(|_| std::fs::remove_dir_all(&file)).unwrap();
        }
    }
}
