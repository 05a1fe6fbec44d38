//! The stdin of a held session: the prompt goes in as a row, and then it stays open.
//!
//! claude reads it when it likes, so nothing here waits: the loop is told when there is room. When
//! oo dies the pipe closes, and claude ends its turn and leaves.

use std::fs::File;
use std::io::{self, BufRead};
use std::time::Duration;

use uuid::Uuid;

use super::{Notice, Observer, Run};
use crate::error::{Error, Result};
use crate::platform::pipe::{self, Writer};
use crate::run::held;
use crate::run::launch::Prepared;
use crate::run::user_row::UserRow;

/// How much is written before signals and clocks are asked again, in bytes.
const BATCH: usize = 256 << 10;

/// An open stdin, and what is still to be written to it.
#[derive(Debug)]
pub(super) struct Stdin {
    writer: Writer,
    unsent: Option<UserRow<File>>,
}

impl Stdin {
    /// What claude gets as its stdin, and our end of it when the session is held open.
    pub(super) fn of(prepared: &Prepared) -> Result<(File, Option<Self>)> {
        let prompt = prepared.prompt()?;
        if prepared.spec.hold.is_none() {
            return Ok((prompt, None));
        }
        let (reader, writer) = pipe::into_child()
            .map_err(|e| Error::io("make a pipe for", prepared.files.root(), e))?;
        let unsent = Some(UserRow::new(prompt, Uuid::new_v4()));
        Ok((reader, Some(Self { writer, unsent })))
    }

    /// Waits until more of the prompt can be written; for ever when there is no more.
    pub(super) async fn room(&self) -> io::Result<()> {
        match self.unsent {
            Some(_) => self.writer.room().await,
            None => std::future::pending().await,
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let Some(row) = &mut self.unsent else {
            return Ok(());
        };
        let mut left = BATCH;
        while left > 0 {
            let bytes = row.fill_buf()?;
            if bytes.is_empty() {
                self.unsent = None;
                break;
            }
            match self.writer.write(bytes) {
                Ok(count) => {
                    row.consume(count);
                    left = left.saturating_sub(count);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Run {
    /// Writes more of the prompt.
    pub(super) fn send_prompt(&mut self, now: Duration) {
        let Some(stdin) = &mut self.stdin else { return };
        if let Err(error) = stdin.send() {
            // A claude that reads no more is about to end, and says itself why.
            if error.kind() != io::ErrorKind::BrokenPipe {
                self.notes
                    .push(format!("the prompt could not be written: {error}"));
            }
            self.close_stdin(now);
        }
    }

    /// Closes stdin, if it is open: claude leaves when it has nothing to do.
    pub(super) fn close_stdin(&mut self, now: Duration) {
        self.stdin = None;
        self.watchdog.closed(now);
    }

    /// The session was idle for as long as it may.
    pub(super) fn close_idle(&mut self, now: Duration, observer: &mut dyn Observer) {
        let idle = self.prepared.spec.hold.and_then(|hold| hold.idle);
        observer.notice(&Notice::Closing(idle.unwrap_or_default()));
        self.close_stdin(now);
    }

    /// A line can come just before stdin is closed on a session that rests. Then the turn that it
    /// starts is what the ladder ends, and no answer is whole.
    pub(super) fn interrupt_late_turn(&mut self, now: Duration) {
        if !self.observed.in_turn {
            return;
        }
        if let Some(ladder) = &mut self.ladder
            && ladder.turn_began(now)
            && let Some(record) = &mut self.record
            && let Some(stop) = &mut record.stop
        {
            stop.after_answer = false;
            if let Err(error) = record.write(&self.prepared.files) {
                self.notes.push(error.to_string());
            }
        }
    }

    /// Writes down the results that have come. What cannot be written is made good at the end.
    pub(super) fn log_results(&mut self) {
        if let Some(log) = &mut self.results
            && let Err(error) = log.add(&self.observed.results)
        {
            let error = error.to_string();
            if !self.notes.contains(&error) {
                self.notes.push(error);
            }
        }
    }

    /// Makes the file of results agree with what the document will say.
    pub(super) fn settle_results(&mut self) {
        if self.results.is_some()
            && let Err(error) = held::settle(&self.prepared.files, &self.observed.results)
        {
            self.notes.push(error.to_string());
        }
    }
}
