//! One question to one server, until there is an answer.
//!
//! Packets get lost, so a question is sent again on the same socket until its time is over. Some servers know no EDNS:
//! they report an error or stay silent, so later packets leave it out. Some change the case of letters: as their answers
//! are easier to forge, they are asked again over TCP, and where that is closed their second answer must equal the first.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_resolver::proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::Name;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

use super::{DnsFailure, RecordKind, record_type};

/// After this long without an answer the packet counts as lost.
const RESEND_AFTER: Duration = Duration::from_millis(400);

/// Packets with EDNS before the first without: two lost ones in a row are rare.
const WITH_EDNS: usize = 2;

/// How long the right answer may still come after one whose letters differ: a forger may have been faster.
const RIGHT_LETTERS_WITHIN: Duration = Duration::from_millis(100);

/// The largest UDP answer accepted: what passes every network unfragmented.
const UDP_BYTES_MAX: u16 = 1_232;

/// What is asked, and how.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) name: &'a str,
    pub(super) kind: RecordKind,
    /// Whether the server shall ask others.
    pub(super) recursion: bool,
    /// Whether the answer shall come even where DNSSEC says that it is false.
    pub(super) unchecked: bool,
}

/// Asks within `time`.
pub(super) async fn exchange(server: SocketAddr, asked: Asked<'_>, time: Duration) -> Result<Message, DnsFailure> {
    tokio::time::timeout(time, ask(server, asked)).await.map_err(|_| DnsFailure::Timeout)?
}

async fn ask(server: SocketAddr, asked: Asked<'_>) -> Result<Message, DnsFailure> {
    let question = Question::new(asked, true)?;
    let answer = match over_udp(server, &question).await? {
        Heard::Answer(answer) => answer,
        Heard::OtherLetters(first) => match over_tcp(server, &question).await {
            Ok(answer) => return Ok(answer),
            Err(_) => return ask_twice(server, asked, &first).await,
        },
    };
    if answer.metadata.truncation { over_tcp(server, &question).await } else { Ok(answer) }
}

/// Asks a server that changes letters once more, from another port and with another identifier: two forged answers that
/// are equal and both fit are as unlikely as one that repeats the letters.
async fn ask_twice(server: SocketAddr, asked: Asked<'_>, first: &Message) -> Result<Message, DnsFailure> {
    let (Heard::Answer(second) | Heard::OtherLetters(second)) = over_udp(server, &Question::new(asked, false)?).await?;
    let same = |left: &Message, right: &Message| {
        let lines = |message: &Message| {
            let mut lines: Vec<String> =
                message.answers.iter().map(|record| format!("{} {}", record.record_type(), record.data)).collect();
            lines.sort();
            lines
        };
        left.metadata.response_code == right.metadata.response_code && lines(left) == lines(right)
    };
    if same(first, &second) { Ok(second) } else { Err(DnsFailure::Malformed) }
}

/// A question as it is sent, with EDNS and without.
pub(super) struct Question {
    pub(super) message: Message,
    with_edns: Vec<u8>,
    plain: Vec<u8>,
}

impl Question {
    /// A question with a random identifier and, when `cased`, randomly cased letters.
    ///
    /// # Errors
    /// When the name cannot be asked about.
    pub(super) fn new(asked: Asked<'_>, cased: bool) -> Result<Self, DnsFailure> {
        let [high, low, coins @ ..] = chassis::random::bytes::<34>().map_err(|_| DnsFailure::Malformed)?;
        let coin = |index: usize| {
            coins.get(index % coins.len()).is_some_and(|byte| byte >> (index / coins.len() % 8) & 1 == 1)
        };
        let letters = asked.name.chars().enumerate();
        let name: String = letters
            .map(|(index, letter)| if cased && coin(index) { letter.to_ascii_uppercase() } else { letter })
            .collect();
        let name = Name::from_ascii(format!("{name}.")).map_err(|_| DnsFailure::Malformed)?;
        let mut message = Message::new(u16::from_be_bytes([high, low]), MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = asked.recursion;
        message.metadata.checking_disabled = asked.unchecked;
        message.add_query(Query::query(name, record_type(asked.kind)));
        let bytes = |message: &Message| message.to_vec().map_err(|_| DnsFailure::Malformed);
        let plain = bytes(&message)?;
        let mut edns = Edns::new();
        edns.set_max_payload(UDP_BYTES_MAX);
        message.set_edns(edns);
        Ok(Self { with_edns: bytes(&message)?, message, plain })
    }

    /// What an answer is to this question.
    fn hears(&self, answer: Message) -> Option<Heard> {
        if answer.metadata.id != self.message.metadata.id || answer.metadata.message_type != MessageType::Response {
            return None;
        }
        match (self.message.queries.as_slice(), answer.queries.as_slice()) {
            ([asked], [answered]) if asked.query_type != answered.query_type => None,
            ([asked], [answered]) if asked.name.eq_case(&answered.name) => Some(Heard::Answer(answer)),
            ([asked], [answered]) if asked.name == answered.name => Some(Heard::OtherLetters(answer)),
            // Some servers leave the question out of a refusal.
            (_, []) if answer.answers.is_empty() => Some(Heard::Answer(answer)),
            _ => None,
        }
    }
}

/// An answer that fits.
enum Heard {
    /// It repeats the question letter for letter.
    Answer(Message),
    /// It repeats the question with letters of other case.
    OtherLetters(Message),
}

async fn over_udp(server: SocketAddr, question: &Question) -> Result<Heard, DnsFailure> {
    let local: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((local, 0)).await.map_err(|_| DnsFailure::Unreachable)?;
    // Connected: answers from other addresses never reach us.
    socket.connect(server).await.map_err(|error| failure(&error))?;
    for sent in 0_usize.. {
        // The first two with EDNS, then in turn.
        let is_plain = sent >= WITH_EDNS && (sent - WITH_EDNS).is_multiple_of(2);
        let packet = if is_plain { &question.plain } else { &question.with_edns };
        socket.send(packet).await.map_err(|error| failure(&error))?;
        match tokio::time::timeout(RESEND_AFTER, receive(&socket, question)).await {
            Err(_) => {}
            Ok(Ok(Heard::Answer(refusal))) if !is_plain && knows_no_edns(&refusal) => {
                socket.send(&question.plain).await.map_err(|error| failure(&error))?;
                let again = tokio::time::timeout(RESEND_AFTER, receive(&socket, question)).await;
                return again.unwrap_or(Ok(Heard::Answer(refusal)));
            }
            Ok(Ok(Heard::OtherLetters(answer))) => {
                return match tokio::time::timeout(RIGHT_LETTERS_WITHIN, receive_right(&socket, question)).await {
                    Ok(right) => right.map(Heard::Answer),
                    Err(_) => Ok(Heard::OtherLetters(answer)),
                };
            }
            Ok(heard) => return heard,
        }
    }
    Err(DnsFailure::Timeout)
}

/// Whether the answer says that the server does not understand EDNS.
fn knows_no_edns(answer: &Message) -> bool {
    matches!(answer.metadata.response_code, ResponseCode::FormErr | ResponseCode::NotImp | ResponseCode::BADVERS)
}

/// The next answer that fits. A forged or foreign one is waited past, not believed and not given up on.
async fn receive(socket: &UdpSocket, question: &Question) -> Result<Heard, DnsFailure> {
    let mut buffer = vec![0; usize::from(UDP_BYTES_MAX) * 4];
    loop {
        let length = socket.recv(&mut buffer).await.map_err(|error| failure(&error))?;
        let answer = Message::from_vec(buffer.get(..length).unwrap_or_default());
        if let Some(heard) = answer.ok().and_then(|answer| question.hears(answer)) {
            return Ok(heard);
        }
    }
}

async fn receive_right(socket: &UdpSocket, question: &Question) -> Result<Message, DnsFailure> {
    loop {
        if let Heard::Answer(answer) = receive(socket, question).await? {
            return Ok(answer);
        }
    }
}

async fn over_tcp(server: SocketAddr, question: &Question) -> Result<Message, DnsFailure> {
    let failed = |error: std::io::Error| failure(&error);
    let mut stream = TcpStream::connect(server).await.map_err(failed)?;
    let bytes = &question.with_edns;
    let length = u16::try_from(bytes.len()).map_err(|_| DnsFailure::Malformed)?;
    stream.write_all(&[&length.to_be_bytes()[..], bytes].concat()).await.map_err(failed)?;
    let length = stream.read_u16().await.map_err(failed)?;
    let mut buffer = vec![0; usize::from(length)];
    stream.read_exact(&mut buffer).await.map_err(failed)?;
    let answer = Message::from_vec(&buffer).map_err(|_| DnsFailure::Malformed)?;
    match question.hears(answer) {
        // Nobody outside of the connection can have written it: the letters matter no more.
        Some(Heard::Answer(answer) | Heard::OtherLetters(answer)) => Ok(answer),
        None => Err(DnsFailure::Malformed),
    }
}

/// Whether this machine has no way there, or the server is not answering.
fn failure(error: &std::io::Error) -> DnsFailure {
    match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof => DnsFailure::Timeout,
        _ => DnsFailure::Unreachable,
    }
}
