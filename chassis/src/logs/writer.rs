//! A bounded buffer of finished lines, and the thread that writes it.
//!
//! Logging copies a line under a lock. The thread takes all pending lines every few milliseconds, so that a busy
//! process neither wakes a thread per line nor writes line by line; without log lines the thread sleeps. A channel with
//! a thread wakes that thread for nearly every line, which cost a saturated gateway two system calls per request
//! (docs/develop/decisions/exchange.md).

use std::io::{ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Bytes of lines that may wait for a slow reader before lines are dropped, beside as many that are being written.
const BYTES_WAITING_MAX: usize = 8 * 1024 * 1024;

/// This many pending bytes are written at once, with one system call.
const BATCH_BYTES: usize = 64 * 1024;

/// How long the first of several lines waits for others.
const BATCH_WAIT: Duration = Duration::from_millis(5);

/// How long the end of the process waits for a slow reader of the last lines.
const LAST_LINES_MAX: Duration = Duration::from_secs(1);

/// Takes whole lines without waiting for their reader.
#[derive(Clone)]
pub(super) struct Queue(Arc<Shared>);

/// Stops the writing when dropped; pending lines are written first.
pub(super) struct Writing(Queue);

struct Shared {
    state: Mutex<State>,
    /// Wakes the writer.
    wake_up: Condvar,
    /// The writer has written its last line.
    ended: Condvar,
    dropped: AtomicU64,
}

#[derive(Default)]
struct State {
    lines: Vec<u8>,
    writer: Writer,
    closing: bool,
}

/// The state of the thread.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Writer {
    /// It sleeps until the first line.
    #[default]
    Asleep,
    /// It checks periodically.
    Awake,
    /// It has ended.
    Gone,
}

impl Queue {
    /// Starts the thread, which writes to `output`.
    pub(super) fn start(output: impl Write + Send + 'static) -> std::io::Result<(Self, Writing)> {
        let shared = Shared {
            state: Mutex::default(),
            wake_up: Condvar::new(),
            ended: Condvar::new(),
            dropped: AtomicU64::new(0),
        };
        let queue = Self(Arc::new(shared));
        let writer = queue.clone();
        std::thread::Builder::new().name("log".to_owned()).spawn(move || writer.write_out(output))?;
        Ok((queue.clone(), Writing(queue)))
    }

    /// Queues one line; a line beyond the limit is dropped and counted.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.0.state.lock();
        let before = state.lines.len();
        let after = before + line.len();
        if state.closing || after > BYTES_WAITING_MAX {
            drop(state);
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.lines.extend_from_slice(line);
        let first = state.writer == Writer::Asleep;
        if first {
            state.writer = Writer::Awake;
        }
        drop(state);
        if first || (before < BATCH_BYTES && after >= BATCH_BYTES) {
            self.0.wake_up.notify_one();
        }
    }

    /// Lines that were dropped or could not be written.
    pub(super) fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    fn write_out(&self, mut output: impl Write) {
        let (mut lines, mut torn) = (Vec::new(), false);
        while self.take(&mut lines) {
            // The rest of a torn line is lost: the next line starts on a new line.
            torn = torn && written(&mut output, b"\n") == 0;
            let done = if torn { 0 } else { written(&mut output, &lines) };
            let (kept, lost) = lines.split_at(done);
            if !lost.is_empty() {
                torn |= kept.last().is_some_and(|byte| *byte != b'\n');
                let lost = memchr::memchr_iter(b'\n', lost).count();
                self.0.dropped.fetch_add(lost as u64, Ordering::Relaxed);
            }
            // The output keeps unflushed data and retries with the next lines.
            let _ = output.flush();
            lines.clear();
            // After a long backlog.
            lines.shrink_to(2 * BATCH_BYTES);
        }
        self.0.state.lock().writer = Writer::Gone;
        self.0.ended.notify_all();
    }

    /// Waits for lines and takes all of them, leaving `empty`; false if no more will come.
    fn take(&self, empty: &mut Vec<u8>) -> bool {
        let mut state = self.0.state.lock();
        if state.lines.is_empty() {
            state.writer = Writer::Asleep;
            self.0.wake_up.wait_while(&mut state, |state| state.lines.is_empty() && !state.closing);
        }
        state.writer = Writer::Awake;
        let few = |state: &mut State| state.lines.len() < BATCH_BYTES && !state.closing;
        self.0.wake_up.wait_while_for(&mut state, few, BATCH_WAIT);
        std::mem::swap(&mut state.lines, empty);
        !empty.is_empty()
    }
}

/// Writes as much as possible; returns the number of bytes.
fn written(output: &mut impl Write, lines: &[u8]) -> usize {
    let mut done = 0;
    while let Some(rest) = lines.get(done..).filter(|rest| !rest.is_empty()) {
        match output.write(rest) {
            Ok(0) => break,
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // A full pipe that another process has made non-blocking.
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::park_timeout(BATCH_WAIT),
            Err(_) => break,
        }
    }
    done
}

impl Drop for Writing {
    fn drop(&mut self) {
        let shared = &self.0.0;
        let mut state = shared.state.lock();
        state.closing = true;
        shared.wake_up.notify_one();
        let until = Instant::now() + LAST_LINES_MAX;
        while state.writer != Writer::Gone && !shared.ended.wait_until(&mut state, until).timed_out() {}
    }
}

impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// More than any test here needs.
    const WRITES_MAX: usize = 100_000;

    /// Reports the writes; with a gate, each write waits for it.
    struct Output {
        writes: SyncSender<Vec<u8>>,
        gate: Option<Receiver<()>>,
    }

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.writes.send(bytes.to_vec()).unwrap();
            if let Some(gate) = &self.gate {
                gate.recv().map_err(|_| Error::from(ErrorKind::BrokenPipe))?;
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn open() -> (Queue, Writing, Receiver<Vec<u8>>) {
        let (writes, written) = sync_channel(WRITES_MAX);
        let (queue, writing) = Queue::start(Output { writes, gate: None }).unwrap();
        (queue, writing, written)
    }

    fn gated() -> (Queue, Writing, Receiver<Vec<u8>>, SyncSender<()>) {
        let ((writes, written), (let_through, gate)) = (sync_channel(WRITES_MAX), sync_channel(WRITES_MAX));
        let (queue, writing) = Queue::start(Output { writes, gate: Some(gate) }).unwrap();
        (queue, writing, written, let_through)
    }

    #[test]
    fn a_line_is_written_while_the_process_lives_and_the_thread_sleeps_again_for_the_next() {
        let (queue, _writing, written) = open();
        for line in ["one\n", "two\n"] {
            queue.push(line.as_bytes());
            assert_eq!(written.recv().unwrap(), line.as_bytes());
        }
        assert_eq!(queue.dropped(), 0);
    }

    #[test]
    fn lines_of_many_threads_are_whole_and_none_is_lost() {
        let (queue, writing, written) = open();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let queue = &queue;
                scope.spawn(move || {
                    for line in 0..5_000 {
                        queue.push(format!("thread {thread} says {line:>5}\n").as_bytes());
                    }
                });
            }
        });
        drop(writing);
        let text = String::from_utf8(written.try_iter().flatten().collect()).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 20_000);
        assert!(lines.iter().all(|line| line.len() == "thread 0 says     0".len()));
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 20_000);
        assert_eq!(queue.dropped(), 0);
    }

    #[test]
    fn shutdown_writes_the_queued_lines_and_refuses_new_ones() {
        let (queue, writing, written) = open();
        queue.push(b"last words\n");
        drop(writing);
        assert_eq!(written.try_iter().flatten().collect::<Vec<_>>(), b"last words\n");
        queue.push(b"too late\n");
        assert_eq!(queue.dropped(), 1);
    }

    #[test]
    fn unread_lines_are_dropped_and_counted_and_queued_ones_are_written() {
        let (queue, writing, written, let_through) = gated();
        queue.push(b"held\n");
        assert_eq!(written.recv().unwrap(), b"held\n");
        let kilobyte = [b'x'; 1_024];
        for _ in 0..BYTES_WAITING_MAX / 1_024 + 3 {
            queue.push(&kilobyte);
        }
        assert_eq!(queue.dropped(), 3);
        let_through.send(()).unwrap();
        let_through.send(()).unwrap();
        assert_eq!(written.recv().unwrap().len(), BYTES_WAITING_MAX);
        drop(writing);
    }

    /// Takes so many bytes at a time, or fails.
    struct Disk {
        limits: Vec<Result<usize, ErrorKind>>,
        has: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let limit = if self.limits.is_empty() { Ok(usize::MAX) } else { self.limits.remove(0) };
            let taken = limit?.min(bytes.len());
            self.has.lock().extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The content of a disk with this capacity after two batches, and the number of lost lines.
    fn kept(limits: &[Result<usize, ErrorKind>]) -> (String, u64) {
        let has = Arc::new(Mutex::new(Vec::new()));
        let (queue, writing) = Queue::start(Disk { limits: limits.to_vec(), has: has.clone() }).unwrap();
        queue.push(b"one\ntwo\n");
        while queue.dropped() == 0 && !has.lock().ends_with(b"two\n") {
            std::thread::yield_now();
        }
        queue.push(b"three\n");
        drop(writing);
        let has = String::from_utf8(has.lock().clone()).unwrap();
        (has, queue.dropped())
    }

    #[test]
    fn a_full_disk_loses_only_the_lines_that_do_not_fit() {
        let full = Err(ErrorKind::StorageFull);
        assert_eq!(kept(&[]), ("one\ntwo\nthree\n".to_owned(), 0));
        assert_eq!(kept(&[full]), ("three\n".to_owned(), 2));
        assert_eq!(kept(&[Ok(4), full]), ("one\nthree\n".to_owned(), 1));
        assert_eq!(kept(&[Ok(5), full]), ("one\nt\nthree\n".to_owned(), 1));
        assert_eq!(kept(&[Ok(5), full, full]), ("one\nt".to_owned(), 2), "still full");
    }

    #[test]
    fn the_writer_waits_for_an_output_that_is_not_ready() {
        let not_ready = Err(ErrorKind::WouldBlock);
        assert_eq!(
            kept(&[not_ready, Ok(3), not_ready, Err(ErrorKind::Interrupted)]),
            ("one\ntwo\nthree\n".to_owned(), 0)
        );
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let (queue, writing, written, let_through) = gated();
        drop(let_through);
        queue.push(b"one\ntwo\n");
        assert_eq!(written.recv().unwrap(), b"one\ntwo\n");
        drop(writing);
        assert_eq!(queue.dropped(), 2);
    }
}
