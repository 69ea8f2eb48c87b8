//! Questions and answers over loopback, honest and forged.

use hickory_resolver::proto::rr::rdata;
use tokio::net::TcpListener;

use super::*;

/// The answer to a question: a CNAME for the name exactly as it was asked.
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

async fn asked(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 2_000];
    let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
    buffer.truncate(length);
    (buffer, from)
}

async fn ask(address: SocketAddr) -> Result<Reply, DnsFailure> {
    exchange(address, "shop.customer.test", RecordKind::Cname, false, Duration::from_secs(5)).await
}

fn cname(reply: &Reply) -> (&str, &RecordData) {
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
async fn forged_answers_are_waited_past() {
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
    let (socket, address) = server().await;
    let listener = TcpListener::bind(address).await.unwrap();
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
async fn silence_ends_in_time() {
    let (_socket, address) = server().await;
    assert_eq!(ask(address).await, Err(DnsFailure::Timeout));
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

#[test]
fn questions_are_hard_to_guess() {
    let asked: Vec<Message> = (0..20).map(|_| question("shop.customer.test", RecordKind::A, true).unwrap()).collect();
    let distinct = |texts: Vec<String>| texts.into_iter().collect::<std::collections::HashSet<_>>().len();
    assert!(distinct(asked.iter().map(|message| message.metadata.id.to_string()).collect()) > 15);
    assert!(distinct(asked.iter().map(|message| message.queries[0].name.to_ascii()).collect()) > 15);
    assert!(asked.iter().all(|message| message.metadata.recursion_desired));
}

#[test]
fn a_name_of_the_greatest_length_can_be_asked_about() {
    let name = format!("{}.{}.{}.{}.customer.com", "a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(47));
    assert!(question(&name, RecordKind::Caa, true).unwrap().to_vec().is_ok());
}
