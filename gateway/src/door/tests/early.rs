//! Answers that the doorman has before the proxy sees the request.

use std::time::Duration;

use super::rig::{GET, POST_5, Rig, rig, rig_with};
use crate::door::DoorSettings;

const KNOWN: &str = "GET /known HTTP/1.1\r\nHost: a.example\r\n\r\n";
const LAST: &str = "GET /last HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
const ANSWER: &str = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A connection whose doorman knows what to say to [`KNOWN`] and [`LAST`].
fn knowing(rig: Rig) -> Rig {
    for head in [KNOWN, LAST] {
        rig.doorman.early.lock().insert(head.as_bytes().to_vec(), ANSWER.as_bytes().to_vec());
    }
    rig
}

#[tokio::test(start_paused = true)]
async fn what_is_answered_early_the_proxy_never_reads() {
    let mut rig = knowing(rig());
    rig.send(format!("{KNOWN}{KNOWN}{GET}")).await;
    assert_eq!(rig.read().await.unwrap(), GET);
    rig.respond(OK).await;
    assert_eq!((rig.connection.seen(), rig.connection.done()), (3, 3));
    assert_eq!(rig.received().await, format!("{ANSWER}{ANSWER}{OK}"));
}

#[tokio::test(start_paused = true)]
async fn after_a_request_that_was_forwarded_heads_pass_unseen_until_it_is_worth_a_look_again() {
    let mut rig = knowing(rig());
    rig.connection.try_early(false);
    rig.send(format!("{KNOWN}{KNOWN}{GET}")).await;
    assert_eq!(rig.read().await.unwrap(), KNOWN);
    rig.connection.try_early(true);
    rig.respond(OK).await;
    assert_eq!(rig.read().await.unwrap(), GET);
    rig.respond(OK).await;
    assert_eq!(rig.received().await, format!("{OK}{ANSWER}{OK}"));
}

#[tokio::test(start_paused = true)]
async fn requests_with_a_body_are_the_proxys() {
    let mut rig = knowing(rig());
    rig.doorman.early.lock().insert(POST_5.as_bytes().to_vec(), ANSWER.as_bytes().to_vec());
    rig.send(format!("{POST_5}hello")).await;
    assert_eq!(rig.read().await.unwrap(), format!("{POST_5}hello"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_to_close_gets_its_answer_and_the_proxy_sees_the_end() {
    let mut rig = knowing(rig());
    rig.send(format!("{LAST}{GET}")).await;
    assert_eq!(rig.read().await.unwrap(), "");
    assert_eq!((rig.connection.seen(), rig.connection.done()), (1, 1));
    assert_eq!(rig.received().await, ANSWER);
}

#[tokio::test(start_paused = true)]
async fn a_connection_the_proxy_knows_nothing_of_ends_before_the_proxy_loses_its_patience() {
    let mut rig = knowing(rig());
    for _ in 0..4 {
        rig.send(KNOWN).await;
        assert!(rig.nothing_to_read().await);
        tokio::time::sleep(Duration::from_secs(11)).await;
    }
    rig.send(KNOWN).await;
    assert_eq!(rig.read().await.unwrap(), "");
    assert_eq!(rig.received().await, ANSWER.repeat(5));
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_answers_is_not_read_either_and_cut_in_time() {
    let mut rig = knowing(rig_with(DoorSettings::default(), None, 256));
    let sending = async {
        let bytes = KNOWN.repeat(100);
        let _ = tokio::io::AsyncWriteExt::write_all(&mut rig.client, bytes.as_bytes()).await;
    };
    let reading = super::rig::read(&mut rig.stream);
    let read = tokio::select! {
        () = sending => panic!("all was taken although no answer was read"),
        read = reading => read,
    };
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    assert!(rig.connection.seen() < 12, "{} answers wait", rig.connection.seen());
}
