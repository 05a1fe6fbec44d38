//! Receipts: one line in the ledger for each thing that oo did. Never a text, never a token.

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::result::ResultDocument;
use crate::error::Result;
use crate::exit::{Class, Verb};
use crate::platform::{clock, host};
use crate::store::{Ledger, StateDir};

/// The record of one thing that oo did.
#[derive(Debug, Serialize)]
pub struct Receipt {
    at: Timestamp,
    verb: Verb,
    class: Option<Class>,
    session_id: Option<String>,
    run_id: Option<Uuid>,
    msg_id: Option<Uuid>,
    from: Option<String>,
    via: String,
    sha256: Option<String>,
    exit_code: Option<u8>,
}

/// Appends the receipt of a run that is over.
///
/// # Errors
/// When the ledger cannot be written.
pub fn record(state: &StateDir, document: &ResultDocument) -> Result<()> {
    let parent = document.lineage.as_ref().map(|lineage| lineage.parent);
    let receipt = Receipt {
        at: clock::now(),
        verb: document.verb,
        class: document.class,
        session_id: document.session_id.clone(),
        run_id: document.run_id,
        msg_id: None,
        from: parent.map(|parent| parent.to_string()),
        via: format!("{} pid {}", host::user_at_host(), nix::unistd::getpid()),
        sha256: None,
        exit_code: document.exit_code,
    };
    Ledger::at(state.receipts()).append(&receipt)
}
