//! The connection to claude: lines in, lines out, each on a thread of its own.
//!
//! The threads know nothing of what they carry. Whatever the peer does (not reading, endless
//! lines, closing early), the doorman's own loop never waits for it, so that a signal always
//! finds it awake.

use std::io::{BufReader, Read, Write};
use std::ops::ControlFlow;
use std::sync::mpsc as blocking;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::inbox::LONGEST_LINE;
use crate::store::each_line;

/// Lines that wait to be taken. When it is full the peer waits.
const INCOMING: usize = 16;

/// Answers that wait to be read. A peer that leaves so many unread has stopped reading.
const OUTGOING: usize = 64;

/// The threads do little; the default of 2 MiB each would be for nothing.
const STACK: usize = 128 * 1024;

/// What came in.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A line, without its line feed.
    Line(Vec<u8>),
    /// A line of more than 1 MiB; it was passed by.
    TooLong,
}

/// A connection: stdin and stdout, or a pair in memory.
#[derive(Debug)]
pub struct Connection {
    incoming: mpsc::Receiver<Incoming>,
    outgoing: Option<blocking::SyncSender<Vec<u8>>>,
    written: blocking::Receiver<()>,
}

/// The other end of a connection in memory, for tests.
#[derive(Debug)]
pub struct Peer {
    incoming: Option<mpsc::Sender<Incoming>>,
    outgoing: blocking::Receiver<Vec<u8>>,
    _written: blocking::Sender<()>,
}

/// The peer does not take answers any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl Connection {
    /// Over this process's stdin and stdout.
    ///
    /// # Errors
    /// When no thread can be had.
    #[allow(
        clippy::disallowed_methods,
        reason = "stdout is the doorman's end of the protocol"
    )]
    pub fn stdio() -> std::io::Result<Self> {
        Self::over(std::io::stdin(), std::io::stdout())
    }

    /// Over any pair of streams.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn over(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
    ) -> std::io::Result<Self> {
        let (lines, incoming) = mpsc::channel(INCOMING);
        let (outgoing, answers) = blocking::sync_channel(OUTGOING);
        let (done, written) = blocking::channel();
        spawn("reader", move || read(reader, &lines))?;
        spawn("writer", move || {
            write(writer, &answers);
            // Nobody may be waiting for it.
            let _ = done.send(());
        })?;
        Ok(Self {
            incoming,
            outgoing: Some(outgoing),
            written,
        })
    }

    /// A connection in memory, and its other end.
    #[must_use]
    pub fn memory() -> (Self, Peer) {
        let (lines, incoming) = mpsc::channel(INCOMING);
        let (outgoing, answers) = blocking::sync_channel(OUTGOING);
        let (done, written) = blocking::channel();
        let connection = Self {
            incoming,
            outgoing: Some(outgoing),
            written,
        };
        let peer = Peer {
            incoming: Some(lines),
            outgoing: answers,
            _written: done,
        };
        (connection, peer)
    }

    /// The next line; nothing when the input has ended. Safe to abandon.
    pub async fn next(&mut self) -> Option<Incoming> {
        self.incoming.recv().await
    }

    /// Hands an answer over to be written; never waits.
    ///
    /// # Errors
    /// When the peer has closed its end or stopped reading.
    pub fn send(&self, line: Vec<u8>) -> Result<(), Gone> {
        match &self.outgoing {
            Some(outgoing) => outgoing.try_send(line).map_err(|_| Gone),
            None => Err(Gone),
        }
    }

    /// Waits until everything handed over is written, at most for `limit`.
    pub fn flush(mut self, limit: Duration) {
        self.outgoing = None;
        // Whether it was in time or not, there is nothing more to do.
        let _ = self.written.recv_timeout(limit);
    }
}

impl Peer {
    /// Sends a line.
    ///
    /// # Errors
    /// When the doorman has left or does not read.
    pub fn send(&self, line: &str) -> Result<(), Gone> {
        let line = Incoming::Line(line.as_bytes().to_vec());
        match &self.incoming {
            Some(incoming) => incoming.try_send(line).map_err(|_| Gone),
            None => Err(Gone),
        }
    }

    /// Closes the doorman's input.
    pub fn close(&mut self) {
        self.incoming = None;
    }

    /// The next answer, if there is one by now.
    #[must_use]
    pub fn answer(&self) -> Option<Vec<u8>> {
        self.outgoing.try_recv().ok()
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK)
        .spawn(work)
        .map(drop)
}

/// Ends with the input, or when nobody takes the lines any more. An error ends it as an end does:
/// either way nothing more will come.
fn read(reader: impl Read, lines: &mpsc::Sender<Incoming>) {
    let _ended = each_line(&mut BufReader::new(reader), LONGEST_LINE - 1, |line| {
        let incoming = match line.bytes {
            Some(bytes) => Incoming::Line(bytes.to_vec()),
            None => Incoming::TooLong,
        };
        match lines.blocking_send(incoming) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
}

/// Ends when there is nothing more to write, or nobody to read it.
fn write(mut writer: impl Write, answers: &blocking::Receiver<Vec<u8>>) {
    while let Ok(answer) = answers.recv() {
        if writer
            .write_all(&answer)
            .and_then(|()| writer.flush())
            .is_err()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn all(mut connection: Connection) -> Vec<Incoming> {
        let mut found = Vec::new();
        while let Some(incoming) = connection.incoming.blocking_recv() {
            found.push(incoming);
        }
        found
    }

    #[test]
    fn lines_come_in_and_long_ones_are_passed_by() {
        let mut input = b"one\n".to_vec();
        input.extend(std::iter::repeat_n(b'x', LONGEST_LINE - 1));
        input.push(b'\n');
        input.extend(std::iter::repeat_n(b'y', 3 * LONGEST_LINE));
        input.extend(b"\nlast");
        let connection = Connection::over(std::io::Cursor::new(input), std::io::sink()).unwrap();
        let found = all(connection);
        assert_eq!(found.len(), 4);
        assert_eq!(found[0], Incoming::Line(b"one".to_vec()));
        assert!(matches!(&found[1], Incoming::Line(line) if line.len() == LONGEST_LINE - 1));
        assert_eq!(found[2], Incoming::TooLong);
        assert_eq!(found[3], Incoming::Line(b"last".to_vec()));
    }

    #[test]
    fn answers_go_out_in_order_and_flush_waits_for_them() {
        let written = Shared::default();
        let connection = Connection::over(std::io::empty(), written.clone()).unwrap();
        for line in ["a\n", "b\n", "c\n"] {
            connection.send(line.into()).unwrap();
        }
        connection.flush(Duration::from_secs(10));
        assert_eq!(written.0.lock().unwrap().as_slice(), b"a\nb\nc\n");
    }

    #[test]
    fn a_peer_that_does_not_read_holds_nobody_up() {
        let (connection, _peer) = Connection::memory();
        for _ in 0..OUTGOING {
            connection.send(b"x\n".to_vec()).unwrap();
        }
        assert_eq!(connection.send(b"x\n".to_vec()), Err(Gone));
    }
}
