//! Queries and answers over loopback, honest and forged.

use hickory_resolver::proto::rr::rdata;
use tokio::net::TcpListener;

use std::net::Ipv4Addr;

use hickory_resolver::proto::op::{MessageType, OpCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UdpSocket;

use super::exchange::EncodedQuery;
use super::*;

/// The answer to a query: a CNAME for the name exactly as queried.
fn answer_to(question: &[u8], target: &str) -> Message {
    let question = Message::from_vec(question).unwrap();
    let query = question.queries[0].clone();
    let mut answer = Message::response(question.metadata.id, OpCode::Query);
    answer.metadata.authoritative = true;
    let target = RData::CNAME(rdata::CNAME(Name::from_ascii(target).unwrap()));
    answer.add_answer(Record::from_rdata(query.name.clone(), 300, target));
    answer.add_query(query);
    answer
}

async fn server() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// A server on one port over UDP and TCP that is free for both.
async fn server_over_both() -> (UdpSocket, TcpListener, SocketAddr) {
    loop {
        let (socket, address) = server().await;
        if let Ok(listener) = TcpListener::bind(address).await {
            return (socket, listener, address);
        }
    }
}

async fn asked(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 2_000];
    let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
    buffer.truncate(length);
    (buffer, from)
}

const ASKED: QueryOptions<'static> =
    QueryOptions { name: "shop.customer.test", kind: RecordKind::Cname, recursion: false, unchecked: false };

async fn ask(address: SocketAddr) -> Result<DnsReply, NoAnswer> {
    exchange(address, ASKED, Duration::from_secs(5)).await.map(|message| reply(&message))
}

fn cname(reply: &DnsReply) -> (&str, &RecordData) {
    (reply.answers[0].owner.as_str(), &reply.answers[0].data)
}

#[tokio::test]
async fn an_answer_is_read_in_lower_case() {
    let (socket, address) = server().await;
    let serving = async {
        let (question, from) = asked(&socket).await;
        socket.send_to(&answer_to(&question, "Target.EDGE.test.").to_vec().unwrap(), from).await.unwrap();
    };
    let (reply, ()) = tokio::join!(ask(address), serving);
    let reply = reply.unwrap();
    assert!(reply.authoritative);
    assert_eq!(cname(&reply), ("shop.customer.test", &RecordData::Cname("target.edge.test".to_owned())));
}

#[tokio::test]
async fn forged_answers_are_ignored_until_the_real_one_arrives() {
    let (socket, address) = server().await;
    let serving = async {
        let (question, from) = asked(&socket).await;
        let honest = answer_to(&question, "honest.test.");
        let mut other_id = answer_to(&question, "forged.test.");
        other_id.metadata.id = other_id.metadata.id.wrapping_add(1);
        let mut other_case = answer_to(&question, "forged.test.");
        let flipped: String =
            other_case.queries[0]
                .name
                .to_ascii()
                .chars()
                .map(|letter| {
                    if letter.is_ascii_lowercase() { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() }
                })
                .collect();
        other_case.queries[0].name = Name::from_ascii(flipped).unwrap();
        let mut other_kind = answer_to(&question, "forged.test.");
        other_kind.queries[0].query_type = RecordType::A;
        let mut no_response = answer_to(&question, "forged.test.");
        no_response.metadata.message_type = MessageType::Query;
        for message in [other_id, other_case, other_kind, no_response] {
            socket.send_to(&message.to_vec().unwrap(), from).await.unwrap();
        }
        socket.send_to(b"noise", from).await.unwrap();
        socket.send_to(&honest.to_vec().unwrap(), from).await.unwrap();
    };
    let (reply, ()) = tokio::join!(ask(address), serving);
    assert_eq!(cname(&reply.unwrap()).1, &RecordData::Cname("honest.test".to_owned()));
}

#[tokio::test]
async fn a_truncated_answer_is_asked_for_again_over_tcp() {
    let (socket, listener, address) = server_over_both().await;
    let serving = async {
        let (question, from) = asked(&socket).await;
        let mut truncated = answer_to(&question, "short.test.");
        truncated.answers.clear();
        truncated.metadata.truncation = true;
        socket.send_to(&truncated.to_vec().unwrap(), from).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let length = stream.read_u16().await.unwrap();
        let mut question = vec![0; usize::from(length)];
        stream.read_exact(&mut question).await.unwrap();
        let answer = answer_to(&question, "long.test.").to_vec().unwrap();
        stream.write_u16(u16::try_from(answer.len()).unwrap()).await.unwrap();
        stream.write_all(&answer).await.unwrap();
    };
    let (reply, ()) = tokio::join!(ask(address), serving);
    assert_eq!(cname(&reply.unwrap()).1, &RecordData::Cname("long.test".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_query_without_an_answer_ends_in_time() {
    let (_socket, address) = server().await;
    assert_eq!(ask(address).await, Err(NoAnswer::Timeout));
}

#[tokio::test]
async fn refusals_and_denials_keep_their_meaning() {
    for (code, expected) in [
        (ResponseCode::NXDomain, ReplyCode::NoSuchName),
        (ResponseCode::ServFail, ReplyCode::ServFail),
        (ResponseCode::Refused, ReplyCode::Refused),
        (ResponseCode::NotImp, ReplyCode::Other),
    ] {
        let (socket, address) = server().await;
        let serving = async {
            let (question, from) = asked(&socket).await;
            let mut answer = answer_to(&question, "x.test.");
            answer.answers.clear();
            answer.metadata.response_code = code;
            socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
        };
        let (reply, ()) = tokio::join!(ask(address), serving);
        assert_eq!(reply.unwrap().code, expected);
    }
}

// promise: domains.8
#[tokio::test]
async fn a_lost_packet_is_sent_again_within_half_a_second() {
    let (socket, address) = server().await;
    let serving = async {
        let (first, _) = asked(&socket).await;
        let lost_at = tokio::time::Instant::now();
        let (second, from) = asked(&socket).await;
        assert!(lost_at.elapsed() <= Duration::from_millis(500), "{:?}", lost_at.elapsed());
        assert_eq!(first, second, "the same query, so that an answer to either matches");
        socket.send_to(&answer_to(&second, "late.test.").to_vec().unwrap(), from).await.unwrap();
    };
    let (reply, ()) = tokio::join!(ask(address), serving);
    assert_eq!(cname(&reply.unwrap()).1, &RecordData::Cname("late.test".to_owned()));
}

// promise: domains.9
#[tokio::test]
async fn an_answer_that_took_longer_than_two_packets_counts() {
    let (socket, address) = server().await;
    let serving = async {
        let (first, from) = asked(&socket).await;
        for _ in 0..3 {
            asked(&socket).await; // it is at work on the first
        }
        socket.send_to(&answer_to(&first, "slow.test.").to_vec().unwrap(), from).await.unwrap();
    };
    let (reply, ()) = tokio::join!(ask(address), serving);
    assert_eq!(cname(&reply.unwrap()).1, &RecordData::Cname("slow.test".to_owned()));
}

// promise: domains.9
#[tokio::test]
async fn servers_without_edns_are_queried_without_it_after_an_error_or_silence() {
    for says_so in [true, false] {
        let (socket, address) = server().await;
        let serving = async {
            loop {
                let (question, from) = asked(&socket).await;
                if Message::from_vec(&question).unwrap().edns.is_none() {
                    socket.send_to(&answer_to(&question, "old.test.").to_vec().unwrap(), from).await.unwrap();
                    return;
                }
                if says_so {
                    let mut error = answer_to(&question, "x.test.");
                    error.answers.clear();
                    error.metadata.response_code = ResponseCode::FormErr;
                    socket.send_to(&error.to_vec().unwrap(), from).await.unwrap();
                }
            }
        };
        let (reply, ()) = tokio::join!(ask(address), serving);
        assert_eq!(cname(&reply.unwrap()).1, &RecordData::Cname("old.test".to_owned()), "{says_so}");
    }
}

/// An answer in lower case.
fn small(question: &[u8], target: &str) -> Vec<u8> {
    let mut answer = answer_to(question, target);
    answer.queries[0].name = answer.queries[0].name.to_lowercase();
    answer.to_vec().unwrap()
}

// promise: domains.9
#[tokio::test]
async fn a_server_that_changes_the_case_of_letters_is_queried_again_over_tcp() {
    let (socket, listener, address) = server_over_both().await;
    let serving = async {
        let (question, from) = asked(&socket).await;
        socket.send_to(&small(&question, "perhaps-forged.test."), from).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let length = stream.read_u16().await.unwrap();
        let mut question = vec![0; usize::from(length)];
        stream.read_exact(&mut question).await.unwrap();
        let answer = small(&question, "true.test.");
        stream.write_u16(u16::try_from(answer.len()).unwrap()).await.unwrap();
        stream.write_all(&answer).await.unwrap();
    };
    let (reply, ()) = tokio::join!(ask(address), serving);
    assert_eq!(cname(&reply.unwrap()).1, &RecordData::Cname("true.test".to_owned()));
}

// promise: domains.9
#[tokio::test]
async fn without_tcp_two_equal_answers_count_and_two_different_ones_do_not() {
    for (second, expected) in [("one.test.", true), ("two.test.", false)] {
        let (socket, address) = server().await;
        let serving = async {
            let (question, from) = asked(&socket).await;
            socket.send_to(&small(&question, "one.test."), from).await.unwrap();
            let (question, again_from) = asked(&socket).await;
            assert_ne!(from, again_from, "from another port");
            socket.send_to(&small(&question, second), again_from).await.unwrap();
        };
        let (reply, ()) = tokio::join!(ask(address), serving);
        assert_eq!(reply.is_ok(), expected, "{reply:?}");
    }
}

/// A resolver that answers each query with the function's result; `None` sends nothing.
fn resolver(answer: impl Fn(&[u8]) -> Option<Message> + Send + 'static) -> SocketAddr {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let address = socket.local_addr().unwrap();
    let socket = UdpSocket::from_std(socket).unwrap();
    tokio::spawn(async move {
        loop {
            let (question, from) = asked(&socket).await;
            if let Some(answer) = answer(&question) {
                socket.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
            }
        }
    });
    address
}

fn failing(code: ResponseCode) -> impl Fn(&[u8]) -> Option<Message> + Send + 'static {
    move |question| {
        let mut answer = answer_to(question, "x.test.");
        answer.answers.clear();
        answer.metadata.response_code = code;
        Some(answer)
    }
}

async fn recurse(resolvers: Vec<SocketAddr>) -> Result<DnsReply, NoAnswer> {
    WireDns { resolvers, authoritative_port: 53 }.recurse("shop.customer.test", RecordKind::Cname).await
}

// promise: domains.8
#[tokio::test]
async fn a_failing_or_silent_resolver_does_not_stop_a_check() {
    let good = || resolver(|question| Some(answer_to(question, "good.test.")));
    for bad in [
        resolver(failing(ResponseCode::ServFail)),
        resolver(failing(ResponseCode::Refused)),
        resolver(failing(ResponseCode::NotImp)),
        resolver(|_| None),
    ] {
        let started = tokio::time::Instant::now();
        let reply = recurse(vec![bad, good()]).await.unwrap();
        assert_eq!(cname(&reply).1, &RecordData::Cname("good.test".to_owned()));
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    }
    let denied = recurse(vec![resolver(failing(ResponseCode::NXDomain)), good()]).await.unwrap();
    assert_eq!(denied.code, ReplyCode::NoSuchName, "a denial is an answer");
    let failed =
        recurse(vec![resolver(failing(ResponseCode::ServFail)), resolver(failing(ResponseCode::Refused))]).await;
    assert_eq!(failed.unwrap().code, ReplyCode::ServFail);
}

// promise: domains.10
#[tokio::test]
async fn an_answer_that_only_unvalidated_queries_get_is_bogus() {
    let validating = resolver(|question| {
        let unchecked = Message::from_vec(question).unwrap().metadata.checking_disabled;
        if unchecked { Some(answer_to(question, "x.test.")) } else { failing(ResponseCode::ServFail)(question) }
    });
    assert_eq!(recurse(vec![validating]).await.unwrap().code, ReplyCode::Bogus);
}

#[test]
fn questions_are_hard_to_guess() {
    let asked: Vec<Message> =
        (0..20).map(|_| EncodedQuery::new(QueryOptions { recursion: true, ..ASKED }, true).unwrap().message).collect();
    let distinct = |texts: Vec<String>| texts.into_iter().collect::<std::collections::HashSet<_>>().len();
    assert!(distinct(asked.iter().map(|message| message.metadata.id.to_string()).collect()) > 15);
    assert!(distinct(asked.iter().map(|message| message.queries[0].name.to_ascii()).collect()) > 15);
    assert!(asked.iter().all(|message| message.metadata.recursion_desired));
}

#[test]
fn a_name_of_the_greatest_length_can_be_queried() {
    let name = format!("{}.{}.{}.{}.customer.com", "a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(47));
    assert!(EncodedQuery::new(QueryOptions { name: &name, ..ASKED }, true).is_ok());
}
