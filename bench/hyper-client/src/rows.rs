//! What both clients make of each response, beside what the tests expect of the gateway's own.

use std::fs::DirEntry;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::timeout;

use crate::responses::{Dice, ENDINGS, Then, answer, malformed, sizes, trailers};
use crate::server::{self, After, SURPLUS, Scripted, USUAL};
use crate::{Ask, Client, GET, Reply};

/// Longer than any response of a row takes.
const REPLY_MAX: Duration = Duration::from_secs(2);
/// The upstream that answers at random may keep a client waiting.
const RANDOM_REPLY_MAX: Duration = Duration::from_millis(50);
const RANDOM_REQUESTS: usize = 1_000;

/// Results of a row: the response is complete or not, and its connection serves the next request or not.
const KEPT: &str = "whole, kept";
const LEFT: &str = "whole, left";
const CUT: &str = "cut, left";
const REFUSED: &str = "refused";
/// The next request got another response than its own.
const NEXT_IS_WRONG: &str = ", THE NEXT IS WRONG";

struct Row {
    what: String,
    ask: Ask,
    response: Vec<u8>,
    after: After,
    /// The result that the tests expect; empty: they expect none.
    expected: &'static str,
}

impl Row {
    fn new(what: impl Into<String>, response: impl Into<Vec<u8>>, after: After, expected: &'static str) -> Self {
        Self { what: what.into(), ask: GET, response: response.into(), after, expected }
    }

    fn to(self, method: &'static str, body_bytes: usize) -> Self {
        Self { ask: Ask { method, body_bytes }, ..self }
    }
}

/// The tables of the tests, and the corpus of the fuzzer.
fn tables() -> anyhow::Result<Vec<Row>> {
    let mut rows: Vec<Row> =
        malformed().into_iter().map(|(what, bytes)| Row::new(what, bytes, After::Closes, REFUSED)).collect();
    for (what, body, then) in sizes().into_iter().chain(trailers()) {
        let expected = match then {
            Then::Kept => KEPT,
            Then::Left => LEFT,
            Then::Cut => CUT,
        };
        rows.push(Row::new(what, answer(&body), After::Waits, expected));
    }
    for (body, complete) in ENDINGS {
        for after in [After::Closes, After::Resets] {
            let expected = if complete { LEFT } else { CUT };
            rows.push(Row::new(format!("{body:?}, {after:?}"), answer(body), after, expected));
        }
    }
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (folder, is_body) in [("response", false), ("chunks", true)] {
        let mut files = std::fs::read_dir(corpus.join(folder))?.collect::<Result<Vec<_>, _>>()?;
        files.sort_by_key(DirEntry::file_name);
        for file in files {
            let bytes = std::fs::read(file.path())?;
            // The first byte is the size of the fuzzer's pieces.
            let bytes = if is_body { [answer(""), bytes[1..].to_vec()].concat() } else { bytes };
            rows.push(Row::new(format!("corpus: {folder}/{}", file.file_name().display()), bytes, After::Closes, ""));
        }
    }
    Ok(rows)
}

/// Single responses that tests of the gateway expect to end like this.
fn single() -> Vec<Row> {
    let row = |what: &str, head: &str, body: &str, expected| {
        Row::new(what, format!("HTTP/1.1 {head}\r\n\r\n{body}"), After::Waits, expected)
    };
    let closing = |what: &str, text: &str, expected| Row::new(what, text, After::Closes, expected);
    let interim =
        |count: usize| ["HTTP/1.1 103 Early Hints\r\n\r\n".repeat(count).into_bytes(), USUAL.to_vec()].concat();
    let chunks = "5\r\nhello\r\n0\r\n\r\n";
    let coded = "200 OK\r\nTransfer-Encoding: chunked";
    let surplus = String::from_utf8_lossy(SURPLUS);
    vec![
        row("a length twice", "200 OK\r\nContent-Length: 5\r\nContent-Length: 5", "hello", KEPT),
        row("a length twice in a field", "200 OK\r\nContent-Length: 5, 5", "hello", KEPT),
        row("an empty length", "200 OK\r\nContent-Length:", "", REFUSED),
        row("a length of 65 bits", "200 OK\r\nContent-Length: 18446744073709551616", "", REFUSED),
        row("gzip, chunked", "200 OK\r\nTransfer-Encoding: gzip, chunked", chunks, REFUSED),
        closing("gzip", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello", REFUSED),
        row("chunked twice", &format!("{coded}\r\nTransfer-Encoding: chunked"), chunks, REFUSED),
        row("length and coding", &format!("{coded}\r\nContent-Length: 5"), chunks, LEFT),
        row("length, coding, surplus", &format!("{coded}\r\nContent-Length: 3"), &format!("{chunks}{surplus}"), LEFT),
        row("204 with a length", "204 No Content\r\nContent-Length: 9", "", LEFT),
        row("204 with a length of 0", "204 No Content\r\nContent-Length: 0", "", KEPT),
        row("204 with a coding", "204 No Content\r\nTransfer-Encoding: chunked", "", LEFT),
        row("304 with a length", "304 Not Modified\r\nContent-Length: 9", "", LEFT),
        row("304 with a coding", "304 Not Modified\r\nTransfer-Encoding: chunked", "", LEFT),
        row("304", "304 Not Modified\r\nETag: \"1\"", "", KEPT),
        row("to HEAD, a length", "200 OK\r\nContent-Length: 9", "", LEFT).to("HEAD", 0),
        row("to HEAD, a coding", coded, "", LEFT).to("HEAD", 0),
        row("to HEAD, nothing", "200 OK\r\nX-A: 1", "", KEPT).to("HEAD", 0),
        row("Connection: close", "200 OK\r\nConnection: close\r\nContent-Length: 5", "hello", LEFT),
        row("a folded line, a space before a colon", "200 OK\r\nX: a\r\n b\r\nContent-Length : 5", "hello", KEPT),
        closing("no length", "HTTP/1.1 200 OK\r\n\r\nhello", LEFT),
        closing("a body shorter than its length", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", CUT),
        closing("a head that ends early", "HTTP/1.1 200 OK\r\nContent-Ty", REFUSED),
        Row::new("HTTP/1.0, chunked", format!("HTTP/1.0 {coded}\r\n\r\n{chunks}"), After::Waits, REFUSED),
        Row::new("HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", After::Waits, LEFT),
        row("101 unasked", "101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket", "", REFUSED),
        Row::new("16 interim responses", interim(16), After::Waits, KEPT),
        Row::new("17 interim responses", interim(17), After::Waits, REFUSED),
        Row::new("1,000 interim responses", interim(1_000), After::Waits, REFUSED),
        closing("a reset while the body is sent", &format!("HTTP/1.1 {coded}\r\n\r\n{chunks}"), LEFT)
            .to("POST", 20_000_000),
        Row::new("surplus bytes", [USUAL, SURPLUS].concat(), After::Waits, LEFT),
        Row::new("late bytes", USUAL, After::SendsMore { seen: true }, LEFT),
        Row::new("late bytes, just before the next request", USUAL, After::SendsMore { seen: false }, LEFT),
    ]
}

/// Prints the results of all rows.
///
/// # Errors
/// If a result of the gateway's own client is not the one that its tests expect.
pub async fn compare() -> anyhow::Result<()> {
    let (mut unexpected, mut different, mut wrong) = (Vec::new(), 0, 0);
    let rows: Vec<Row> = tables()?.into_iter().chain(single()).collect();
    println!("{:<46} {:<20} hyper", "response", "ours");
    for row in &rows {
        let ((ours, our_reply), (hyper, reply)) = (result("ours", row).await?, result("hyper", row).await?);
        let is_other = our_reply.whole && reply.whole && our_reply.body != reply.body;
        let mark = if is_other {
            "  OTHER BODY"
        } else if ours != hyper {
            "  DIFFERS"
        } else {
            ""
        };
        println!("{:<46} {ours:<20} {hyper}{mark}", row.what);
        different += usize::from(!mark.is_empty());
        wrong += usize::from(hyper.contains(NEXT_IS_WRONG));
        if !row.expected.is_empty() && ours != row.expected {
            unexpected.push(format!("{}: {ours}, not {}", row.what, row.expected));
        }
    }
    println!("{} rows; hyper differs in {different}; the response after it is wrong in {wrong}", rows.len());
    for name in ["ours", "hyper"] {
        let (whole, foreign) = at_random(name).await?;
        println!("{name}: of {RANDOM_REQUESTS} random responses {whole} whole, {foreign} with bytes of an earlier one");
    }
    anyhow::ensure!(unexpected.is_empty(), "ours: {}", unexpected.join("; "));
    Ok(())
}

/// Sends the request of a row and another one.
async fn result(name: &str, row: &Row) -> anyhow::Result<(String, Reply)> {
    let upstream = Scripted::start(row.response.clone(), row.after)?;
    let mut client = Client::new(name, upstream.address)?;
    let reply = timeout(REPLY_MAX, client.send(row.ask, 1)).await;
    let (reply, is_late) = reply.map_or((Reply::default(), true), |reply| (reply.unwrap_or_default(), false));
    let_runtime_run().await;
    upstream.is_done()?;
    if matches!(row.after, After::SendsMore { .. }) {
        upstream.send_more()?;
    }
    if row.after != (After::SendsMore { seen: false }) {
        let_runtime_run().await;
    }
    let next = timeout(REPLY_MAX, client.send(GET, 1)).await.unwrap_or_else(|_| Ok(Reply::default()))?;
    let result = match (&reply, upstream.connections.load(Ordering::SeqCst)) {
        _ if is_late => "waits",
        (Reply { whole: false, head, .. }, _) if head.is_empty() => REFUSED,
        (Reply { whole: false, .. }, _) => CUT,
        (_, 1) => KEPT,
        _ => LEFT,
    };
    let next = match &next {
        Reply { whole: true, body, .. } if body == b"[]" => "",
        Reply { whole: true, .. } => NEXT_IS_WRONG,
        _ => ", the next fails",
    };
    Ok((format!("{result}{next}"), reply))
}

/// The runtime asks the kernel for new events once in 61 steps, as long as there is something to do.
async fn let_runtime_run() {
    for _ in 0..200 {
        yield_now().await;
    }
}

/// The number of complete responses, and of responses with bytes of an earlier one.
async fn at_random(name: &str) -> anyhow::Result<(usize, usize)> {
    let (upstream, asked) = server::random()?;
    let (mut client, mut dice) = (Client::new(name, upstream)?, Dice(0x746f_6c6c));
    let (mut whole, mut foreign) = (0, 0);
    for _ in 0..RANDOM_REQUESTS {
        let ask = Ask { method: dice.one_of(&["GET", "HEAD", "GET", "DELETE"]), body_bytes: 0 };
        let earlier = asked.load(Ordering::SeqCst);
        let Ok(reply) = timeout(RANDOM_REPLY_MAX, client.send(ask, 1)).await else { continue };
        let Reply { head, body, whole: is_whole } = reply?;
        let text = [head, body].concat();
        whole += usize::from(is_whole);
        foreign += usize::from(server::marks(&String::from_utf8_lossy(&text)).any(|number| number < earlier));
    }
    Ok((whole, foreign))
}
