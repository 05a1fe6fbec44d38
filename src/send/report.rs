//! The document `oo/send/v1`: what became of a line.

use std::path::Path;

use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::Surroundings;
use super::sight::Sight;
use crate::error::{Error, Result};
use crate::exit::{SendClass, Verb};
use crate::inbox::{Ack, Inbox, LineState, State, Written};
use crate::store::{Receipt, StateDir};

/// The schema of the document.
pub const SCHEMA: &str = "oo/send/v1";

/// What became of a line. A field that does not apply is null.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What became of it.
    pub class: SendClass,
    /// The exit code of the class.
    pub exit_code: u8,
    /// How far the line has come; null when it was not written.
    pub state: Option<LineState>,
    /// The session.
    pub session_id: Option<Uuid>,
    /// The message; null when it was not written, as are the fields of its place.
    pub msg_id: Option<Uuid>,
    /// The sender, as it calls itself.
    pub from: Option<String>,
    /// What oo knows of the sender.
    pub via: String,
    /// sha256 of the line.
    pub sha256: Option<String>,
    /// The inbox.
    pub inbox: Option<String>,
    /// Where in it the line begins.
    pub line_offset: Option<u64>,
    /// The inode of the inbox.
    pub inode: Option<u64>,
    /// When it was last written to the door.
    pub offered_at: Option<Timestamp>,
    /// When it was in the session's queue.
    pub accepted_at: Option<Timestamp>,
    /// When it was in the model's context.
    pub seen_at: Option<Timestamp>,
    /// How often it was written to the door.
    pub attempts: u32,
    /// Why the doorman refused it, or it is queued again.
    pub reason: Option<String>,
    /// What happened, in one sentence.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// The session's doorman, when it was last looked at.
    pub doorman: Option<DoormanSight>,
    /// How long it was waited for the line to arrive.
    pub waited_ms: u64,
    /// When the throttle lets the sender's next line in.
    pub retry_at: Option<Timestamp>,
}

/// What a doorman's heartbeat said.
#[derive(Clone, Debug, Serialize)]
pub struct DoormanSight {
    /// What it was doing.
    pub state: State,
    /// Its pid.
    pub pid: i32,
    /// Whether that was true.
    pub fresh: bool,
}

impl Report {
    /// A report of a line that was not written; nothing is known yet but who wants what.
    #[must_use]
    pub fn about(session: Uuid, around: &Surroundings) -> Self {
        Self {
            session_id: Some(session),
            ..Self::blank(around.via())
        }
    }

    /// A report of a line for a session that could not be found.
    #[must_use]
    pub fn unknown(error: &Error, around: &Surroundings) -> Self {
        let mut report = Self::blank(around.via());
        report.refuse(error);
        report
    }

    fn blank(via: String) -> Self {
        Self {
            schema: SCHEMA,
            class: SendClass::Refused,
            exit_code: SendClass::Refused.exit_code(),
            state: None,
            session_id: None,
            msg_id: None,
            from: None,
            via,
            sha256: None,
            inbox: None,
            line_offset: None,
            inode: None,
            offered_at: None,
            accepted_at: None,
            seen_at: None,
            attempts: 0,
            reason: None,
            message: String::new(),
            hint: None,
            note: None,
            doorman: None,
            waited_ms: 0,
            retry_at: None,
        }
    }

    /// Nothing was written, for this reason.
    pub fn refuse(&mut self, error: &Error) {
        let hint = error.hint_text().map(str::to_owned);
        self.end(SendClass::Refused, error.to_string(), hint);
    }

    /// Nothing was written: the throttle holds the sender back.
    pub(super) fn drop_until(&mut self, retry_at: Timestamp, sender: &str) {
        self.retry_at = Some(retry_at);
        self.end(
            SendClass::Dropped,
            format!(
                "the line was not written: the last one from {sender} to this session is too recent"
            ),
            Some(format!(
                "try again at {retry_at}; --min-interval sets the throttle, 0s turns it off"
            )),
        );
    }

    /// The line is in the inbox.
    pub(super) fn written(&mut self, msg_id: Uuid, inbox: &Inbox, written: &Written) {
        self.state = Some(LineState::Queued);
        self.msg_id = Some(msg_id);
        self.inbox = Some(inbox.lines().display().to_string());
        self.sha256 = Some(written.sha256.clone());
        self.line_offset = Some(written.place.offset);
        self.inode = Some(written.place.inode);
    }

    /// Takes over what the line's last ack says.
    pub(super) fn take_ack(&mut self, ack: &Ack) {
        self.state = Some(ack.state);
        self.offered_at = ack.offered_at;
        self.accepted_at = ack.accepted_at;
        self.seen_at = ack.seen_at;
        self.attempts = ack.attempts;
        self.reason.clone_from(&ack.reason);
    }

    /// Takes over what the last look showed.
    pub(super) fn take_sight(&mut self, sight: &Sight) {
        self.doorman = sight.heartbeat.as_ref().map(|heartbeat| DoormanSight {
            state: heartbeat.state,
            pid: heartbeat.pid,
            fresh: heartbeat.is_fresh(),
        });
        if let Some(note) = &sight.note {
            self.add_note(note);
        }
    }

    /// Says one thing more.
    pub fn add_note(&mut self, note: &str) {
        self.note = Some(match self.note.take() {
            Some(before) => format!("{before}; {note}"),
            None => note.to_owned(),
        });
    }

    /// Says what became of it.
    pub(super) fn end(&mut self, class: SendClass, message: String, hint: Option<String>) {
        self.class = class;
        self.exit_code = class.exit_code();
        self.message = message;
        self.hint = hint;
    }

    /// Appends the receipt. There is none for a session that could not be found, and none in a
    /// state folder that is not ours alone.
    ///
    /// # Errors
    /// When the ledger cannot be written.
    pub fn record(&self, state: &StateDir) -> Result<()> {
        let Some(session) = self.session_id else {
            return Ok(());
        };
        if StateDir::check(state.root()).is_err() {
            return Ok(());
        }
        Receipt {
            class: Some(self.class.name()),
            session_id: Some(session.to_string()),
            msg_id: self.msg_id,
            from: self.from.clone(),
            sha256: self.sha256.clone(),
            exit_code: Some(self.exit_code),
            ..Receipt::new(Verb::Send, self.via.clone())
        }
        .record(state)
    }

    /// Where the line is, for a person.
    pub(super) fn place(&self) -> String {
        let inbox = self.inbox.as_deref().unwrap_or_default();
        let offset = self.line_offset.unwrap_or_default();
        format!("{} (byte {offset})", Path::new(inbox).display())
    }
}
