//! A server that accepts our connection and ends it at the first query: the start waits for some reasons, and not for
//! others.

use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Accepts without a password and is ready for queries.
const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

/// How a server ends a session with this SQLSTATE.
fn fatal(code: &str) -> Vec<u8> {
    let fields = format!("SFATAL\0VFATAL\0C{code}\0Mno more of this\0\0");
    let length = u32::try_from(4 + fields.len()).unwrap();
    [&b"E"[..], &length.to_be_bytes(), fields.as_bytes()].concat()
}

/// Accepts one connection, and ends it with this message after the first query.
async fn end_at_the_question(listener: &TcpListener, words: &[u8]) {
    let (mut client, _) = listener.accept().await.unwrap();
    let mut bytes = [0; 4_096];
    assert_ne!(client.read(&mut bytes).await.unwrap(), 0, "the client sends its startup message");
    client.write_all(WELCOME).await.unwrap();
    assert_ne!(client.read(&mut bytes).await.unwrap(), 0, "it asks");
    client.write_all(words).await.unwrap();
    client.shutdown().await.unwrap();
    // Closing a socket with unread bytes would discard the message; a client that disconnects is fine.
    let _ = client.read_to_end(&mut Vec::new()).await;
}

/// A listener, and the URL of a new database through it.
async fn way_to(server: &Server) -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = format!(":{}/", listener.local_addr().unwrap().port());
    let url = server.database().replace(&format!(":{}/", server.port), &here);
    (listener, url)
}

#[tokio::test]
async fn a_server_that_ends_before_the_first_question_is_waited_for() {
    let server = Server::shared();
    let (listener, url) = way_to(server).await;
    let serving = tokio::spawn(async move {
        // The last one disconnects without a message.
        for words in [fatal("57P01"), fatal("57P02"), fatal("57P03"), Vec::new()] {
            end_at_the_question(&listener, &words).await;
        }
        let (mut client, _) = listener.accept().await.unwrap();
        let mut real = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
        // Either side may close first.
        let _ = tokio::io::copy_bidirectional(&mut client, &mut real).await;
    });
    ends(open(&url)).await.unwrap();
    ends(serving).await.unwrap();
}

#[tokio::test]
async fn a_start_does_not_retry_a_server_that_refuses_the_first_query() {
    let (listener, url) = way_to(Server::shared()).await;
    // Insufficient privilege. A second query would find no server.
    let serving = tokio::spawn(async move { end_at_the_question(&listener, &fatal("42501")).await });
    let error = ends(open(&url)).await.unwrap_err();
    assert_eq!(refusal(&error), "42501");
    ends(serving).await.unwrap();
}

/// Queries until a result after `failures` of this kind; returns whether it succeeded, and the number of attempts.
async fn first(database: &Database, failures: u32, failure: impl Fn() -> sqlx::Error) -> (bool, u32) {
    let attempts = AtomicU32::new(0);
    let query = async || if attempts.fetch_add(1, Ordering::Relaxed) < failures { Err(failure()) } else { Ok(()) };
    let answered = ends(database.first_query(query)).await.is_ok();
    (answered, attempts.into_inner())
}

#[tokio::test]
async fn a_start_waits_for_a_server_that_disconnects_before_the_first_query() {
    let directory = tempfile::tempdir().unwrap();
    let [file, server] = both(directory.path()).await;
    let gone = || sqlx::Error::Io(ErrorKind::ConnectionReset.into());
    assert_eq!(first(&server, 2, gone).await, (true, 3));
    assert_eq!(first(&server, 2, || sqlx::Error::PoolTimedOut).await, (true, 3));
    assert_eq!(first(&server, 2, || sqlx::Error::RowNotFound).await, (false, 1), "waiting changes nothing");
    assert_eq!(first(&file, 2, || sqlx::Error::PoolTimedOut).await, (false, 1), "a file does not go away");
}
