//! One query to one server, until it is answered.
//!
//! Packets get lost, so a query is sent again on the same socket until its time is over. Some servers do not support
//! EDNS: they report an error or stay silent, so later packets omit it. Some change the case of letters. Their answers
//! are easier to forge, so they are asked again over TCP; if TCP is closed, a second answer must equal the first.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_resolver::proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::Name;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

use super::{NoAnswer, RecordKind, record_type};

/// After this long without an answer the packet counts as lost.
const RESEND_AFTER: Duration = Duration::from_millis(400);

/// Packets with EDNS before the first without: two losses in a row are rare.
const WITH_EDNS: usize = 2;

/// How long to wait for the exact answer after one with changed letters, which may be a forgery.
const RIGHT_LETTERS_WITHIN: Duration = Duration::from_millis(100);

/// The largest UDP answer accepted: a size that passes every network unfragmented.
const UDP_BYTES_MAX: u16 = 1_232;

/// A query and its options.
#[derive(Clone, Copy)]
pub(super) struct QueryOptions<'a> {
    pub(super) name: &'a str,
    pub(super) kind: RecordKind,
    /// Whether the server should query others.
    pub(super) recursion: bool,
    /// Whether the answer should be sent even if DNSSEC validation fails.
    pub(super) unchecked: bool,
}

/// Queries within `time`.
pub(super) async fn exchange(server: SocketAddr, asked: QueryOptions<'_>, time: Duration) -> Result<Message, NoAnswer> {
    tokio::time::timeout(time, ask(server, asked)).await.map_err(|_| NoAnswer::Timeout)?
}

async fn ask(server: SocketAddr, asked: QueryOptions<'_>) -> Result<Message, NoAnswer> {
    let question = EncodedQuery::new(asked, true)?;
    let answer = match over_udp(server, &question).await? {
        Matched::Answer(answer) => answer,
        Matched::OtherLetters(first) => match over_tcp(server, &question).await {
            Ok(answer) => return Ok(answer),
            Err(_) => return ask_twice(server, asked, &first).await,
        },
    };
    if answer.metadata.truncation { over_tcp(server, &question).await } else { Ok(answer) }
}

/// Repeats the query to a server that changes letters, from another port and with another identifier: two equal forged
/// answers that both fit are as unlikely as one that repeats the letters.
async fn ask_twice(server: SocketAddr, asked: QueryOptions<'_>, first: &Message) -> Result<Message, NoAnswer> {
    let (Matched::Answer(second) | Matched::OtherLetters(second)) =
        over_udp(server, &EncodedQuery::new(asked, false)?).await?;
    let same = |left: &Message, right: &Message| {
        let lines = |message: &Message| {
            let mut lines: Vec<String> =
                message.answers.iter().map(|record| format!("{} {}", record.record_type(), record.data)).collect();
            lines.sort();
            lines
        };
        left.metadata.response_code == right.metadata.response_code && lines(left) == lines(right)
    };
    if same(first, &second) { Ok(second) } else { Err(NoAnswer::Malformed) }
}

/// A query as it is sent, with EDNS and without.
pub(super) struct EncodedQuery {
    pub(super) message: Message,
    with_edns: Vec<u8>,
    plain: Vec<u8>,
}

impl EncodedQuery {
    /// A query with a random identifier and, if `cased`, randomly cased letters.
    ///
    /// # Errors
    /// If the name cannot be encoded.
    pub(super) fn new(asked: QueryOptions<'_>, cased: bool) -> Result<Self, NoAnswer> {
        let [high, low, coins @ ..] = chassis::random::bytes::<34>().map_err(|_| NoAnswer::Malformed)?;
        let coin = |index: usize| {
            coins.get(index % coins.len()).is_some_and(|byte| byte >> (index / coins.len() % 8) & 1 == 1)
        };
        let letters = asked.name.chars().enumerate();
        let name: String = letters
            .map(|(index, letter)| if cased && coin(index) { letter.to_ascii_uppercase() } else { letter })
            .collect();
        let name = Name::from_ascii(format!("{name}.")).map_err(|_| NoAnswer::Malformed)?;
        let mut message = Message::new(u16::from_be_bytes([high, low]), MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = asked.recursion;
        message.metadata.checking_disabled = asked.unchecked;
        message.add_query(Query::query(name, record_type(asked.kind)));
        let bytes = |message: &Message| message.to_vec().map_err(|_| NoAnswer::Malformed);
        let plain = bytes(&message)?;
        let mut edns = Edns::new();
        edns.set_max_payload(UDP_BYTES_MAX);
        message.set_edns(edns);
        Ok(Self { with_edns: bytes(&message)?, message, plain })
    }

    /// Matches an answer to this query.
    fn hears(&self, answer: Message) -> Option<Matched> {
        if answer.metadata.id != self.message.metadata.id || answer.metadata.message_type != MessageType::Response {
            return None;
        }
        match (self.message.queries.as_slice(), answer.queries.as_slice()) {
            ([asked], [answered]) if asked.query_type != answered.query_type => None,
            ([asked], [answered]) if asked.name.eq_case(&answered.name) => Some(Matched::Answer(answer)),
            ([asked], [answered]) if asked.name == answered.name => Some(Matched::OtherLetters(answer)),
            // Some servers omit the question in a refusal.
            (_, []) if answer.answers.is_empty() => Some(Matched::Answer(answer)),
            _ => None,
        }
    }
}

/// An answer that matches.
enum Matched {
    /// It repeats the query letter for letter.
    Answer(Message),
    /// It repeats the query with letters in another case.
    OtherLetters(Message),
}

async fn over_udp(server: SocketAddr, question: &EncodedQuery) -> Result<Matched, NoAnswer> {
    let local: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((local, 0)).await.map_err(|_| NoAnswer::Unreachable)?;
    // Connected: answers from other addresses never reach us.
    socket.connect(server).await.map_err(|error| failure(&error))?;
    for sent in 0_usize.. {
        // The first two with EDNS, then alternating.
        let is_plain = sent >= WITH_EDNS && (sent - WITH_EDNS).is_multiple_of(2);
        let packet = if is_plain { &question.plain } else { &question.with_edns };
        socket.send(packet).await.map_err(|error| failure(&error))?;
        match tokio::time::timeout(RESEND_AFTER, receive(&socket, question)).await {
            Err(_) => {}
            Ok(Ok(Matched::Answer(refusal))) if !is_plain && knows_no_edns(&refusal) => {
                socket.send(&question.plain).await.map_err(|error| failure(&error))?;
                let again = tokio::time::timeout(RESEND_AFTER, receive(&socket, question)).await;
                return again.unwrap_or(Ok(Matched::Answer(refusal)));
            }
            Ok(Ok(Matched::OtherLetters(answer))) => {
                return match tokio::time::timeout(RIGHT_LETTERS_WITHIN, receive_right(&socket, question)).await {
                    Ok(right) => right.map(Matched::Answer),
                    Err(_) => Ok(Matched::OtherLetters(answer)),
                };
            }
            Ok(reply) => return reply,
        }
    }
    Err(NoAnswer::Timeout)
}

/// Whether the answer says that the server does not support EDNS.
fn knows_no_edns(answer: &Message) -> bool {
    matches!(answer.metadata.response_code, ResponseCode::FormErr | ResponseCode::NotImp | ResponseCode::BADVERS)
}

/// The next answer that matches. Forged and unexpected ones are skipped.
async fn receive(socket: &UdpSocket, question: &EncodedQuery) -> Result<Matched, NoAnswer> {
    let mut buffer = vec![0; usize::from(UDP_BYTES_MAX) * 4];
    loop {
        let length = socket.recv(&mut buffer).await.map_err(|error| failure(&error))?;
        let answer = Message::from_vec(buffer.get(..length).unwrap_or_default());
        if let Some(reply) = answer.ok().and_then(|answer| question.hears(answer)) {
            return Ok(reply);
        }
    }
}

async fn receive_right(socket: &UdpSocket, question: &EncodedQuery) -> Result<Message, NoAnswer> {
    loop {
        if let Matched::Answer(answer) = receive(socket, question).await? {
            return Ok(answer);
        }
    }
}

async fn over_tcp(server: SocketAddr, question: &EncodedQuery) -> Result<Message, NoAnswer> {
    let failed = |error: std::io::Error| failure(&error);
    let mut stream = TcpStream::connect(server).await.map_err(failed)?;
    let bytes = &question.with_edns;
    let length = u16::try_from(bytes.len()).map_err(|_| NoAnswer::Malformed)?;
    stream.write_all(&[&length.to_be_bytes()[..], bytes].concat()).await.map_err(failed)?;
    let length = stream.read_u16().await.map_err(failed)?;
    let mut buffer = vec![0; usize::from(length)];
    stream.read_exact(&mut buffer).await.map_err(failed)?;
    let answer = Message::from_vec(&buffer).map_err(|_| NoAnswer::Malformed)?;
    match question.hears(answer) {
        // Only the server can have written it, so the letters do not matter.
        Some(Matched::Answer(answer) | Matched::OtherLetters(answer)) => Ok(answer),
        None => Err(NoAnswer::Malformed),
    }
}

/// Whether there is no route to the server, or it does not answer.
fn failure(error: &std::io::Error) -> NoAnswer {
    match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => NoAnswer::Timeout,
        _ => NoAnswer::Unreachable,
    }
}
