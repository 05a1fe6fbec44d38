//! Carrying lines: from the inbox through the door, with proof that they arrived.
//!
//! The door never answers, and drops in silence; so a line that was written is only `offered`. The
//! session's transcript proves the rest: `accepted` when its queue shows the text, `seen` when the
//! model's context has the message's id. What is not accepted in time was dropped, and is offered
//! again.
//!
//! - Nothing is written to the door that is not on record as offered, with the place in the
//!   transcript from which it has to be looked for. So a doorman that is killed loses nothing, and
//!   its successor searches before it offers again.
//! - `intake` reads what waits, `lanes` keeps it sender by sender, `offer` makes the next
//!   line ready, `arrivals` finds it in the transcript by `proof`, `record` keeps acks and
//!   offset.
//! - All of this is plain data and short looks at files. Who drives it ([`super::seat`]) says what
//!   time it is, and writes what is to be written.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::reach::{Open, Reach};
use crate::inbox::{Ack, AckClass, Backlog, Inbox, LineState};

mod arrivals;
mod flight;
mod intake;
mod lanes;
mod offer;
mod proof;
mod record;
mod settle;

pub use settle::settle;

use arrivals::Rows;
use flight::{ACCEPT, Flight, Stage};
use lanes::Lanes;
use proof::Proof;

/// How much is read of a file before the heartbeat and the door get their turn, in bytes.
const LOOK: u64 = 4 * 1024 * 1024;

/// How many lines may wait in a session's queue over all senders; what comes then is dropped in
/// silence (measured: 2.1.308, 2.1.332).
const QUEUE: usize = 50;

/// How many lines are known of at a time. What is behind them is read when they are gone.
const KNOWN: usize = 64 * 1024;

/// How long until a door that could not be used is tried again: at first, and at most.
const DOOR_PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(4));

/// How long a line waits for another one with the same text, which cannot be told from it.
const TWIN_PAUSE: Duration = Duration::from_millis(200);

/// How long the last look may take.
const LAST_LOOK: Duration = Duration::from_millis(100);

/// Carries the lines of one inbox.
#[derive(Debug)]
pub struct Delivery {
    inbox: Inbox,
    reach: Reach,
    /// The session in whose transcript lines show up: the inbox's own, until it is left.
    shown_in: Uuid,
    backlog: Option<Backlog>,
    lanes: Lanes,
    flights: Vec<Flight>,
    proof: Proof,
    /// The messages that were seen, and how.
    seen: HashMap<Uuid, Option<AckClass>>,
    delivered: u64,
    /// The offset on disk.
    offset: Option<u64>,
    /// Acks that could not be written yet.
    unrecorded: VecDeque<Ack>,
    door_again: Option<(Instant, Duration)>,
    trouble: Option<String>,
}

/// What is to be done about the door.
#[derive(Debug)]
pub enum Offer {
    /// Nothing.
    None,
    /// These frames are to be written to it.
    Write(Open, Vec<u8>),
    /// The owner has gone over to this session.
    Moved(Uuid),
}

impl Delivery {
    /// Begins with what waits in the inbox.
    #[must_use]
    pub fn new(inbox: Inbox, reach: Reach) -> Self {
        Self {
            shown_in: inbox.session(),
            inbox,
            reach,
            backlog: None,
            lanes: Lanes::default(),
            flights: Vec::new(),
            proof: Proof::default(),
            seen: HashMap::new(),
            delivered: 0,
            offset: None,
            unrecorded: VecDeque::new(),
            door_again: None,
            trouble: None,
        }
    }

    /// Lines that reached the model's context.
    #[must_use]
    pub const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Lines that wait, as far as they are known of.
    #[must_use]
    pub fn pending(&self) -> u64 {
        let on_their_way = |flight: &&Flight| flight.stage != Stage::Resting;
        (self.lanes.len() + self.flights.iter().filter(on_their_way).count()) as u64
    }

    /// What goes wrong, if anything.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Whether the inbox can be read.
    #[must_use]
    pub const fn reads(&self) -> bool {
        self.backlog.is_some()
    }

    /// The files whose changes are news.
    #[must_use]
    pub fn watched(&self) -> Vec<PathBuf> {
        let mut files = vec![self.inbox.lines()];
        files.extend(self.reach.row_path());
        if !self.flights.is_empty() {
            files.extend(self.proof.path());
        }
        files
    }

    /// When it wants to be woken without news; nothing when there is nothing to wait for.
    #[must_use]
    pub fn due(&mut self, now: Instant) -> Option<Instant> {
        let deadline = |flight: &Flight| match flight.stage {
            Stage::Offered(at) | Stage::LookedFor(at) => Some(at),
            Stage::Writing | Stage::Resting | Stage::Accepted => None,
        };
        let deadlines = self.flights.iter().filter_map(deadline).min();
        let offer = if !self.may_offer() {
            None
        } else {
            let again = self.door_again.map(|(at, _)| at);
            self.lanes
                .due(now)
                .map(|at| again.map_or(at, |again| at.max(again)))
        };
        let transcript = self.proof.due(now).filter(|_| !self.flights.is_empty());
        [deadlines, offer, transcript].into_iter().flatten().min()
    }

    /// Looks at what is new. Whether there is more, right now.
    pub fn wake(&mut self, now: Instant) -> bool {
        self.flush();
        self.follow_inbox();
        let more_lines = self.read_inbox(now);
        let rows = self.read_proof(now);
        if rows == Rows::AllRead {
            self.expire(now);
        }
        self.write_offset();
        more_lines || rows == Rows::More
    }

    /// The frames of the last offer were written, or not.
    pub fn written(&mut self, result: std::io::Result<()>, now: Instant) {
        if let Err(e) = result {
            self.trouble = Some(format!("the session's door took no line: {e}"));
        }
        for flight in &mut self.flights {
            if flight.stage == Stage::Writing {
                flight.stage = Stage::Offered(now + ACCEPT);
            }
        }
    }

    /// The owner has gone over to another session: nothing more is offered, but what is in its
    /// queue comes up there (measured: `/clear` in 2.1.332 keeps the lines that wait).
    pub fn go_along(&mut self, to: Uuid) {
        self.shown_in = to;
        self.proof.rest();
        self.proof.reach_back(0);
    }

    /// Whether lines may still turn up that were in the session's queue.
    #[must_use]
    pub fn expects(&self) -> bool {
        let fills = |flight: &Flight| flight.stage.fills_queue();
        self.flights.iter().any(fills)
    }

    /// Looks for what is expected, and for nothing else. Whether there is more to read, right now.
    pub fn look_for_the_rest(&mut self, now: Instant) -> bool {
        self.flush();
        let rows = self.read_proof(now);
        if rows == Rows::AllRead {
            self.expire(now);
        }
        rows == Rows::More
    }

    /// The last look, and the last word on every line that did not arrive: it waits again.
    pub fn leave(&mut self, reason: &str) {
        let end = Instant::now() + LAST_LOOK;
        while self.read_proof(Instant::now()) == Rows::More && Instant::now() < end {}
        for flight in std::mem::take(&mut self.flights) {
            if flight.stage != Stage::Resting {
                self.lanes.released(flight.lane, flight.waiting());
            }
            if flight.ack.state != LineState::Queued {
                self.record(Ack {
                    state: LineState::Queued,
                    class: None,
                    accepted_at: None,
                    reason: Some(reason.to_owned()),
                    ..flight.ack
                });
            }
        }
        self.flush();
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write files as others would"
)]
mod tests;
