//! Acks: what became of a line that a doorman carried.
//!
//! One JSON object a line in `<sid>.inbox.acks`, appended in one write by the holder of the
//! doorman's lock. A line gets one each time its state changes, so the last one tells.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::platform::process::Identity;

/// How far a line has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LineState {
    /// In the inbox.
    Queued,
    /// Written to the door.
    Offered,
    /// In the queue that the session's transcript shows.
    Accepted,
    /// In the model's context.
    Seen,
    /// Something that this version does not know.
    #[serde(other)]
    Unknown,
}

/// What is said of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AckClass {
    /// It came into a turn that was under way.
    DeliveredSteer,
    /// It began a turn.
    DeliveredStart,
    /// It cannot be carried, and was passed.
    Refused,
    /// Something that this version does not know.
    #[serde(other)]
    Unknown,
}

/// An ack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// What is said of it; nothing while it is not known. Before the line is seen it is what is
    /// expected.
    #[serde(default)]
    pub class: Option<AckClass>,
    /// How far it has come.
    pub state: LineState,
    /// The message's id.
    #[serde(default)]
    pub msg_id: Option<Uuid>,
    /// sha256 of the line's exact bytes without its line feed; see [`super::sha256`].
    #[serde(default)]
    pub sha256: String,
    /// Where the line begins.
    pub line_offset: u64,
    /// The inode of the inbox that it lies in.
    pub inode: u64,
    /// The sender, as it calls itself.
    #[serde(default)]
    pub from: Option<String>,
    /// What oo knows of the sender.
    #[serde(default)]
    pub via: Option<String>,
    /// When it was last written to the door.
    #[serde(default)]
    pub offered_at: Option<Timestamp>,
    /// When the transcript showed it in the queue.
    #[serde(default)]
    pub accepted_at: Option<Timestamp>,
    /// When the transcript showed it in the model's context.
    #[serde(default)]
    pub seen_at: Option<Timestamp>,
    /// How often it was written to the door.
    #[serde(default)]
    pub attempts: u32,
    /// Why it was refused, or is queued again.
    #[serde(default)]
    pub reason: Option<String>,
    /// The length of the transcript before the line was written to the door for the first time:
    /// nothing before can be about it.
    #[serde(default)]
    pub transcript_offset: Option<u64>,
    /// The claude to whose door it was written.
    #[serde(default)]
    pub peer: Option<Identity>,
}

impl Ack {
    /// Whether nothing more is to be done about the line: it arrived, or it never will.
    #[must_use]
    pub fn handled(&self) -> bool {
        self.state == LineState::Seen || self.class == Some(AckClass::Refused)
    }
}
