//! Receipts: one line in the ledger for each thing that oo did. Never a text, never a token.

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::{Ledger, StateDir};
use crate::error::Result;
use crate::exit::Verb;
use crate::platform::clock;

/// The record of one thing that oo did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// When it was done.
    pub at: Timestamp,
    /// What was asked for.
    pub verb: Verb,
    /// What became of it; the names are those of the verb's classes.
    pub class: Option<&'static str>,
    /// The session that it was done to.
    pub session_id: Option<String>,
    /// The run.
    pub run_id: Option<Uuid>,
    /// The message that was written.
    pub msg_id: Option<Uuid>,
    /// Who asked, as it calls itself.
    pub from: Option<String>,
    /// What oo knows of who asked.
    pub via: String,
    /// sha256 of what was written.
    pub sha256: Option<String>,
    /// The exit code.
    pub exit_code: Option<u8>,
}

impl Receipt {
    /// A receipt of now, with nothing in it but who asked for what.
    #[must_use]
    pub fn new(verb: Verb, via: String) -> Self {
        Self {
            at: clock::now(),
            verb,
            class: None,
            session_id: None,
            run_id: None,
            msg_id: None,
            from: None,
            via,
            sha256: None,
            exit_code: None,
        }
    }

    /// Appends it to the ledger.
    ///
    /// # Errors
    /// When the ledger cannot be written.
    pub fn record(&self, state: &StateDir) -> Result<()> {
        Ledger::at(state.receipts()).append(self)
    }
}
