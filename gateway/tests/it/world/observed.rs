//! The operator's view: the access log and the admin listener.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::client::status_of;
use super::wire::{Framing, Wire};
use super::{eventually, within};

/// Everything the log writer wrote.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).expect("the log is text")
    }

    /// Every whole line, each a JSON object.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let text = self.text();
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        whole.lines().map(parse).collect()
    }

    /// The line of a request.
    pub(crate) async fn line_of(&self, request_id: &str) -> Value {
        eventually("the line of the request", async || {
            let mut lines = self.lines().into_iter().filter(|line| line["request_id"] == request_id);
            let found = lines.next();
            assert!(lines.next().is_none(), "one request, one line");
            found
        })
        .await
    }
}

/// The admin listener.
#[derive(Clone, Copy)]
pub(crate) struct Admin(pub(crate) SocketAddr);

impl Admin {
    /// Status and body of a GET.
    pub(crate) async fn get(self, target: &str) -> (u16, String) {
        self.ask("GET", target, "").await
    }

    /// Status and body of a request with these field lines.
    pub(crate) async fn ask(self, method: &str, target: &str, fields: &str) -> (u16, String) {
        within(async {
            let stream = tokio::net::TcpStream::connect(self.0).await.expect("the admin listener accepts");
            let mut wire = Wire::new(stream);
            let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
            wire.send(head.as_bytes()).await.unwrap();
            let head = wire.head().await.unwrap().expect("a response");
            let body = wire.body(head.framing(Framing::UntilEnd)).await;
            (status_of(&head), String::from_utf8(body.bytes).unwrap())
        })
        .await
    }

    /// All series and their values, as written.
    pub(crate) async fn metrics(self) -> BTreeMap<String, String> {
        let (status, text) = self.get("/metrics").await;
        assert_eq!(status, 200);
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let parse = |line: &str| {
            let (series, value) = line.rsplit_once(' ').expect("a sample");
            (series.to_owned(), value.to_owned())
        };
        samples.map(parse).collect()
    }

    /// Waits until a series has this value: the end of a request is counted after its response was sent.
    pub(crate) async fn counts(self, series: &str, value: u64) {
        eventually(series, async || (self.metric(series).await == value).then_some(())).await;
    }

    /// One series that counts; that it does not exist is a failure of the test.
    pub(crate) async fn metric(self, series: &str) -> u64 {
        let metrics = self.metrics().await;
        let value = metrics.get(series).unwrap_or_else(|| panic!("no series {series}"));
        value.parse().unwrap_or_else(|_| panic!("{series} is {value}"))
    }
}
