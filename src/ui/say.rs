//! Saying things: the answer and documents on stdout, everything for a person on stderr.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use serde::Serialize;

use super::clean;
use crate::error::{Error, Result};
use crate::platform::terminal;

/// The two streams.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    /// Whether stderr may carry more than errors.
    pub quiet: bool,
}

impl Console {
    /// Writes text to stdout: as it is into a file or pipe, made safe on a terminal. A line feed
    /// is added when it lacks one.
    ///
    /// # Errors
    /// When stdout is closed or full.
    pub fn answer(self, text: &str) -> Result<()> {
        let mut out = stdout();
        let shown = if out.is_terminal() {
            clean(text)
        } else {
            text.into()
        };
        let end = if shown.ends_with('\n') { "" } else { "\n" };
        write!(out, "{shown}{end}")
            .and_then(|()| out.flush())
            .map_err(unwritten)
    }

    /// Writes bytes to stdout as they are.
    ///
    /// # Errors
    /// When stdout is closed or full.
    pub fn bytes(self, bytes: &[u8]) -> Result<()> {
        let mut out = stdout();
        out.write_all(bytes)
            .and_then(|()| out.flush())
            .map_err(unwritten)
    }

    /// The width of the terminal that stdout is; nothing for a file or a pipe.
    #[must_use]
    pub fn width(self) -> Option<u16> {
        let out = stdout();
        if !out.is_terminal() {
            return None;
        }
        Some(terminal::columns(&out).unwrap_or(80))
    }

    /// Writes one JSON document to stdout.
    ///
    /// # Errors
    /// When stdout is closed or full.
    pub fn document<T: Serialize>(self, value: &T) -> Result<()> {
        // Written as it is made: an answer may have many MiB.
        let mut out = io::BufWriter::new(stdout());
        serde_json::to_writer_pretty(&mut out, value)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out))
            .and_then(|()| out.flush())
            .map_err(unwritten)
    }

    /// Writes one JSON document on one line to stdout.
    ///
    /// # Errors
    /// When stdout is closed or full.
    pub fn row<T: Serialize>(self, value: &T) -> Result<()> {
        let text = serde_json::to_string(value)
            .map_err(|e| Error::failed(format!("cannot encode the answer: {e}")))?;
        self.line(text.as_bytes())
    }

    /// Writes bytes and a line feed to stdout.
    ///
    /// # Errors
    /// When stdout is closed or full.
    pub fn line(self, bytes: &[u8]) -> Result<()> {
        let mut out = stdout();
        out.write_all(bytes)
            .and_then(|()| out.write_all(b"\n"))
            .and_then(|()| out.flush())
            .map_err(unwritten)
    }

    /// Says what went wrong, and what to do.
    pub fn error(self, error: &Error) {
        self.failure(&error.to_string(), error.hint_text());
    }

    /// Says what went wrong, and what to do.
    pub fn failure(self, message: &str, hint: Option<&str>) {
        tell("oo: ", message);
        if let Some(hint) = hint {
            tell("    ", hint);
        }
    }

    /// Says something that a person may want to know, unless they asked for quiet.
    pub fn note(self, text: &str) {
        if !self.quiet {
            tell("oo: ", text);
        }
    }
}

/// Nobody is left to tell when stderr cannot be written.
fn tell(begin: &str, text: &str) {
    let _ = writeln!(stderr(), "{begin}{}", clean(text));
}

#[allow(clippy::disallowed_methods, reason = "the one home of this call")]
fn stdout() -> io::Stdout {
    io::stdout()
}

#[allow(clippy::disallowed_methods, reason = "the one home of this call")]
fn stderr() -> io::Stderr {
    io::stderr()
}

/// Whether stderr is a terminal.
#[must_use]
pub(super) fn stderr_is_terminal() -> bool {
    stderr().is_terminal()
}

fn unwritten(error: io::Error) -> Error {
    Error::io("write to", Path::new("stdout"), error)
}
