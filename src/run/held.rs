//! What a held session leaves behind besides the result: the result of every turn as it comes, in
//! `results.jsonl`, and whether it waits for lines.
//!
//! `results.jsonl` has the entries of the document's `results`, one a line. While the run goes on
//! its supervisor appends to it; whoever judges the run makes it agree with the document first.

use serde::{Deserialize, Serialize};

use super::observed::Observed;
use super::result::ResultEntry;
use super::row::ResultRow;
use super::watchdog::Hold;
use crate::error::Result;
use crate::store::{self, Ledger, RunFiles};

/// How much of the events' end is looked at for whether a turn is under way, in bytes.
const EVENTS_TAIL: u64 = 256 * 1024;

/// How a document tells of a held session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldEntry {
    /// How long it may be idle; null when for ever.
    pub idle_ms: Option<u64>,
    /// Whether it is idle now, and waits for lines.
    pub waiting: bool,
}

impl HoldEntry {
    /// The entry of a hold.
    #[must_use]
    pub fn of(hold: Hold, waiting: bool) -> Self {
        Self {
            idle_ms: hold
                .idle
                .map(|idle| u64::try_from(idle.as_millis()).unwrap_or(u64::MAX)),
            waiting,
        }
    }
}

/// Whether a session rests, by the end of its events file. What began before that end is not seen,
/// and an answer that fills all of it hides that the turn is over: then it does not rest.
#[must_use]
pub fn rests(files: &RunFiles) -> bool {
    let mut observed = Observed::default();
    // A first line that lost its beginning is no JSON.
    for line in store::end_of(&files.events(), EVENTS_TAIL).lines() {
        observed.line(line.as_bytes());
    }
    observed.at_rest()
}

/// The file of results, as its supervisor writes it.
#[derive(Debug)]
pub struct ResultsLog {
    ledger: Ledger,
    written: usize,
}

impl ResultsLog {
    /// An empty one.
    #[must_use]
    pub fn of(files: &RunFiles) -> Self {
        Self {
            ledger: Ledger::at(files.results()),
            written: 0,
        }
    }

    /// Appends the results that are not in it yet, each in one write.
    ///
    /// # Errors
    /// When one cannot be written; it is tried again with the next.
    pub fn add(&mut self, results: &[ResultRow]) -> Result<()> {
        while let Some(row) = results.get(self.written) {
            self.ledger.append(&ResultEntry::of(self.written, row))?;
            self.written += 1;
        }
        Ok(())
    }
}

/// Makes the file of results hold these, all and nothing else.
///
/// # Errors
/// When it cannot be read or written.
pub fn settle(files: &RunFiles, results: &[ResultRow]) -> Result<()> {
    let entries = results
        .iter()
        .enumerate()
        .map(|(index, row)| ResultEntry::of(index, row));
    Ledger::at(files.results()).settle(entries)
}
