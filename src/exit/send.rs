//! The classes of `oo send`: what became of a line.

use serde::Serialize;

/// What became of a line. Every class but `refused` and `dropped` means that it is in the inbox
/// or was carried; so does `refused` when there is a `msg_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SendClass {
    /// It came into a turn that was under way.
    DeliveredSteer,
    /// It began a turn.
    DeliveredStart,
    /// It was not written; or it was, and then refused by its doorman or taken out of the inbox.
    Refused,
    /// It is in the inbox of a live session that has no doorman.
    QueuedNoDoorman,
    /// It is in the inbox of a session that does not run.
    QueuedOffline,
    /// It is in the inbox, and was not seen to arrive while oo waited.
    Timeout,
    /// It was not written: the sender's last line to this session is too recent.
    Dropped,
}

impl SendClass {
    /// Every class, in the order of the documents.
    pub const ALL: [Self; 7] = [
        Self::DeliveredSteer,
        Self::DeliveredStart,
        Self::Refused,
        Self::QueuedNoDoorman,
        Self::QueuedOffline,
        Self::Timeout,
        Self::Dropped,
    ];

    /// The exit code.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::DeliveredSteer | Self::DeliveredStart => 0,
            Self::Refused => 1,
            Self::QueuedNoDoorman | Self::QueuedOffline => 3,
            Self::Timeout => 5,
            Self::Dropped => 6,
        }
    }

    /// The class as it is written in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeliveredSteer => "delivered-steer",
            Self::DeliveredStart => "delivered-start",
            Self::Refused => "refused",
            Self::QueuedNoDoorman => "queued-no-doorman",
            Self::QueuedOffline => "queued-offline",
            Self::Timeout => "timeout",
            Self::Dropped => "dropped",
        }
    }

    /// What the class means, in one sentence for the documents.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::DeliveredSteer => {
                "The line came into a turn that was under way: into the model's context, or as far as --until asked."
            }
            Self::DeliveredStart => {
                "The line began a turn: in the model's context, or as far as --until asked."
            }
            Self::Refused => {
                "The line was not written, and the message says what to change; or, when there is a msg_id, it was written and then refused by its doorman or taken out of the inbox."
            }
            Self::QueuedNoDoorman => {
                "The line is in the inbox and stays; the session lives and has no doorman to carry it."
            }
            Self::QueuedOffline => "The line is in the inbox and stays; the session does not run.",
            Self::Timeout => {
                "The line is in the inbox and stays; it was not seen to arrive while oo waited. It is not to be sent again."
            }
            Self::Dropped => {
                "The line was not written: the sender's last line to this session is too recent; `retry_at` says when to try again."
            }
        }
    }
}
