//! The attack matrix as raw bytes through a whole gateway. Every row is refused with an exact status and code; the
//! gateway opens no connection to an upstream, closes the client's, writes one log line and counts once.
//!
//! The unit tests of heads and chunks cut such bytes at every place. These rows prove that nothing between the socket
//! and the upstream changes the result, and that every refusal is logged.

mod bodies;
mod credentials;
mod framing;
mod hosts;
mod lines;
#[path = "../../../listener/src/tests/attacks.rs"]
mod matrix;
mod responses;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use contract::rejection::Rejection;

use self::matrix::Row;
use crate::world::client::Client;
use crate::world::{DEMO, World};

/// Sends every row over TLS on its own connection, and every third one without TLS as well.
// promise: edge.31
async fn refused_by_listener(rows: Vec<Row>) {
    let world = World::start().await;
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    let mut lines = 0;
    assert!(!rows.is_empty());
    hand_out(&rows);
    for (number, row) in rows.iter().enumerate() {
        let mut clients = vec![world.tls(DEMO).await];
        if number % 3 == 0 {
            clients.push(world.plain().await);
        }
        for client in clients {
            is_refused(&world, client, row).await;
            lines += 1;
            *expected.entry(series(row.rejection)).or_default() += 1;
        }
    }
    for (series, count) in expected {
        world.admin.counts(&series, count).await;
    }
    world.assert_upstreams_untouched();
    let served = world.ask(world.list()).await;
    assert_eq!(served.status, 200, "and the gateway serves on");
    world.log.line_of(served.request_id()).await;
    assert_eq!(world.log.lines().len(), lines + 1, "one refusal, one line");
}

/// Writes the rows into the file that the environment names: `bench/run strictness` sends them to other servers.
#[expect(clippy::disallowed_methods, reason = "for another program, not a setting of a process")]
fn hand_out(rows: &[Row]) {
    let Ok(path) = std::env::var("ATTACK_ROWS") else { return };
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    for Row { name, bytes, rejection } in rows {
        let mut line = format!("{name}\t{}\t", rejection.status());
        for byte in bytes {
            let _ = write!(line, "{byte:02x}");
        }
        line.push('\n');
        // One write, so that concurrent tests do not write into its lines.
        file.write_all(line.as_bytes()).unwrap();
    }
}

async fn is_refused(world: &World, mut client: Client, row: &Row) {
    let Row { name, bytes, rejection } = row;
    client.send(bytes).await;
    let method = if bytes.starts_with(b"HEAD ") { "HEAD" } else { "GET" };
    let Some(reply) = client.reply(method).await else { panic!("{name}: no answer") };
    let body: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    assert_eq!((reply.status, body["code"].as_str()), (rejection.status(), Some(rejection.code())), "{name}");
    reply.refused(rejection.status(), rejection.code());
    assert_eq!(client.rest().await, b"", "{name}: one answer, and then the connection ends");
    let line = world.log.line_of(reply.request_id()).await;
    assert_eq!((&line["surface"], &line["code"]), (&"listener".into(), &rejection.code().into()), "{name}");
    world.assert_upstreams_untouched();
}

/// The counter of a refusal before a site is known.
fn series(rejection: Rejection) -> String {
    format!(
        "edge_requests_total{{blame=\"{}\",code=\"{}\",status_class=\"{}xx\",surface=\"listener\"}}",
        rejection.blame().as_str(),
        rejection.code(),
        rejection.status() / 100
    )
}
