//! A line that was offered to the door and is not seen yet.

use std::time::{Duration, Instant};

use super::lanes::{LaneId, Waiting};
use crate::inbox::{Ack, LineState};
use crate::platform::clock;
use crate::platform::process::Identity;

/// How long an accepted line may take to show up in the transcript; after that it counts as
/// dropped. Measured: 0.1 s, and up to 1.2 s while claude swallows a tool's output of many MiB.
/// Should it be wrong, the guard itself drops the same text for 30 seconds, and a late row is
/// believed.
pub(super) const ACCEPT: Duration = Duration::from_secs(2);

/// A line that was offered.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    /// What was last recorded of it.
    pub(super) ack: Ack,
    /// The sender's lane.
    pub(super) lane: LaneId,
    /// Its length in the inbox.
    pub(super) length: u64,
    /// sha256 of the text as the model is shown it: by this the queue's row is known.
    pub(super) shown: String,
    /// Whether that text begins with the message's tag.
    pub(super) tagged: bool,
    /// Where it stands.
    pub(super) stage: Stage,
}

/// Where a line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is being written to the door.
    Writing,
    /// It was written; unless it is accepted before, it counts as dropped at this time.
    Offered(Instant),
    /// Another claude had it, or nobody is known to: only the model's context can have it, and
    /// once that was searched, at this time or later, it waits again.
    LookedFor(Instant),
    /// It was dropped, and waits in its lane to be offered again. Should it show up after all,
    /// it is taken out there.
    Resting,
    /// It is in the session's queue.
    Accepted,
}

impl Stage {
    /// Whether the lane has to wait for it.
    pub(super) const fn holds_lane(self) -> bool {
        matches!(self, Self::Writing | Self::Offered(_) | Self::LookedFor(_))
    }

    /// Whether it takes one of the places that lines can wait in, or may.
    pub(super) const fn fills_queue(self) -> bool {
        matches!(self, Self::Writing | Self::Offered(_) | Self::Accepted)
    }
}

impl Flight {
    /// A line that another doorman offered: what became of it has to be found out first.
    pub(super) fn resumed(
        ack: Ack,
        lane: LaneId,
        length: u64,
        (shown, tagged): (String, bool),
        peer: &Identity,
        now: Instant,
    ) -> Self {
        let passed = ack.offered_at.map_or(ACCEPT, clock::age);
        let stage = match ack.state {
            _ if ack.peer.as_ref() != Some(peer) => Stage::LookedFor(now),
            LineState::Accepted => Stage::Accepted,
            // The time in which it would have been accepted is waited out.
            LineState::Offered => Stage::Offered(now + ACCEPT.saturating_sub(passed)),
            LineState::Queued | LineState::Seen | LineState::Unknown => Stage::LookedFor(now),
        };
        Self {
            ack,
            lane,
            length,
            shown,
            tagged,
            stage,
        }
    }

    /// Where it waits when it is to be offered again.
    pub(super) const fn waiting(&self) -> Waiting {
        Waiting {
            offset: self.ack.line_offset,
            length: self.length,
        }
    }
}
