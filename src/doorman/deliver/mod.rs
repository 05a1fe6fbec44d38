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
//! - All of this is plain data and short looks at files. Who drives it ([`super::seat`]) says what
//!   time it is, and writes what is to be written.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::reach::{Open, Reach};
use crate::inbox::frame;
use crate::inbox::{Ack, AckClass, Backlog, Entry, Inbox, LineState, Message, Refusal, sha256};
use crate::platform::{clock, host};
use crate::session::peer_lines::{Arrival, Sighting};
use crate::session::registry::Row;
use crate::store::Ledger;

mod flight;
mod lanes;
mod proof;
mod settle;

pub use settle::settle;

use flight::{ACCEPT, Flight, Stage};
use lanes::{LaneId, Lanes, Waiting};
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
        let offer = if self.is_full() || self.is_writing() || !self.unrecorded.is_empty() {
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

    /// Makes the next line ready to be written, and puts it on record.
    pub fn offer(&mut self, now: Instant) -> Offer {
        if self.is_writing() || self.is_full() || !self.unrecorded.is_empty() {
            return Offer::None;
        }
        if self.door_again.is_some_and(|(at, _)| at > now) {
            return Offer::None;
        }
        // What was dropped is offered again only after one more look.
        if self
            .flights
            .iter()
            .any(|flight| flight.stage == Stage::Resting)
            && self.read_proof(now) != Rows::AllRead
        {
            return Offer::None;
        }
        while let Some((lane, line)) = self.lanes.next(now) {
            let row = self.reach.row();
            if let Some(session) = row.as_ref().map(|row| row.session_id)
                && session != self.inbox.session()
            {
                return Offer::Moved(session);
            }
            let read = self
                .backlog
                .as_ref()
                .map(|backlog| backlog.message(line.offset, line.length));
            let (message, hash) = match read {
                Some(Ok(Some(read))) => read,
                Some(Ok(None)) | None => {
                    // Another file, or other lines: all is read anew.
                    self.reopen();
                    return Offer::None;
                }
                Some(Err(e)) => return self.stuck(format!("cannot read the inbox: {e}"), now),
            };
            if let Some(class) = self.seen.get(&message.msg_id).copied() {
                self.lanes.take(lane);
                self.repeat(line, hash, &message, class);
                continue;
            }
            match self.frames(&message) {
                Err(refusal) => {
                    self.lanes.take(lane);
                    self.refuse(line, hash, Some(&message), refusal);
                }
                Ok((shown, _)) if self.has_twin(&message, &shown, line) => {
                    self.lanes.pause(lane, now + TWIN_PAUSE);
                }
                Ok((shown, frame)) => {
                    let open = match self.reach.door(row.as_ref()) {
                        Ok(open) => open,
                        Err(why) => return self.stuck(why, now),
                    };
                    self.door_again = None;
                    if !self.take_off((lane, line), &message, hash, shown, row.as_ref(), now) {
                        return Offer::None;
                    }
                    let frames = [open.greeting.as_slice(), &frame].concat();
                    return Offer::Write(open, frames);
                }
            }
        }
        Offer::None
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

    fn is_full(&self) -> bool {
        let fills = |flight: &&Flight| flight.stage.fills_queue();
        self.flights.iter().filter(fills).count() >= QUEUE
    }

    fn is_writing(&self) -> bool {
        self.flights
            .iter()
            .any(|flight| flight.stage == Stage::Writing)
    }

    fn stuck(&mut self, why: String, now: Instant) -> Offer {
        let pause = self
            .door_again
            .map_or(DOOR_PAUSES.0, |(_, last)| (last * 2).min(DOOR_PAUSES.1));
        self.door_again = Some((now + pause, pause));
        self.trouble = Some(why);
        Offer::None
    }

    fn sender(message: &Message) -> String {
        // A plain line has no sender but the user whose file it is in.
        message.from.clone().unwrap_or_else(host::user_at_host)
    }

    /// What is shown of a message, and the frame around it.
    fn frames(&self, message: &Message) -> Result<(String, Vec<u8>), Refusal> {
        let sender = Self::sender(message);
        let shown = frame::shown_text(message, &sender)?;
        let frame = frame::frame(message, &shown, &sender, self.inbox.session())?;
        Ok((sha256(shown.as_bytes()), frame))
    }

    /// Whether a line is on its way that could not be told from this one.
    fn has_twin(&self, message: &Message, shown: &str, line: Waiting) -> bool {
        self.flights.iter().any(|flight| {
            flight.ack.line_offset != line.offset
                && (flight.ack.msg_id == Some(message.msg_id)
                    || (flight.stage.holds_lane() && flight.shown == shown))
        })
    }

    /// Puts a line on record as offered. Without that it is not written.
    fn take_off(
        &mut self,
        (lane, line): (LaneId, Waiting),
        message: &Message,
        sha256: String,
        shown: String,
        row: Option<&Row>,
        now: Instant,
    ) -> bool {
        let from = self.proof.aim(&self.reach, self.inbox.session(), row);
        let resting = self.flights.iter().position(|flight| {
            flight.stage == Stage::Resting && flight.ack.line_offset == line.offset
        });
        let before = resting.map(|at| &self.flights[at].ack);
        let idle = row.and_then(|row| row.status.as_deref()) == Some("idle");
        let ack = Ack {
            // What is expected: a session that is idle begins a turn with it.
            class: Some(if idle {
                AckClass::DeliveredStart
            } else {
                AckClass::DeliveredSteer
            }),
            state: LineState::Offered,
            offered_at: Some(clock::now()),
            attempts: before.map_or(0, |ack| ack.attempts).saturating_add(1),
            transcript_offset: before.and_then(|ack| ack.transcript_offset).or(Some(from)),
            peer: Some(self.reach.peer().clone()),
            ..self.blank(line.offset, sha256, Some(message))
        };
        self.record(ack.clone());
        if self.unrecorded.pop_back().is_some() {
            return false;
        }
        if let Some(at) = resting {
            self.flights.swap_remove(at);
        }
        self.lanes.offer(lane, now);
        self.flights.push(Flight {
            ack,
            lane,
            length: line.length,
            shown,
            tagged: message.tagged,
            stage: Stage::Writing,
        });
        true
    }

    fn blank(&self, line_offset: u64, sha256: String, message: Option<&Message>) -> Ack {
        Ack {
            class: None,
            state: LineState::Queued,
            msg_id: message.map(|message| message.msg_id),
            sha256,
            line_offset,
            inode: self.backlog.as_ref().map_or(0, Backlog::inode),
            from: message.map(Self::sender),
            via: message.and_then(|message| message.via.clone()),
            offered_at: None,
            accepted_at: None,
            seen_at: None,
            attempts: 0,
            reason: None,
            transcript_offset: None,
            peer: None,
        }
    }

    fn refuse(&mut self, line: Waiting, hash: String, message: Option<&Message>, why: Refusal) {
        let Refusal(reason) = why;
        self.record(Ack {
            class: Some(AckClass::Refused),
            reason: Some(reason),
            ..self.blank(line.offset, hash, message)
        });
    }

    /// A line whose message has arrived already, by another line: it is not carried twice.
    fn repeat(&mut self, line: Waiting, hash: String, message: &Message, how: Option<AckClass>) {
        self.delivered += 1;
        self.record(Ack {
            class: how,
            state: LineState::Seen,
            seen_at: Some(clock::now()),
            reason: Some("a message with this id was seen before".to_owned()),
            ..self.blank(line.offset, hash, Some(message))
        });
    }

    fn record(&mut self, ack: Ack) {
        self.unrecorded.push_back(ack);
        self.flush();
    }

    /// Writes what could not be written before, in its order.
    fn flush(&mut self) {
        let ledger = Ledger::at(self.inbox.acks());
        while let Some(ack) = self.unrecorded.front() {
            match ledger.append(ack) {
                Ok(()) => drop(self.unrecorded.pop_front()),
                Err(e) => {
                    self.trouble = Some(e.to_string());
                    return;
                }
            }
        }
    }

    /// Opens the inbox, and again when it is another file.
    fn follow_inbox(&mut self) {
        match &self.backlog {
            Some(backlog) if backlog.is_current(&self.inbox) => {}
            Some(_) | None => self.reopen(),
        }
    }

    fn reopen(&mut self) {
        self.lanes.clear();
        // What waited to be offered again is read again, if it is still there.
        self.flights.retain(|flight| flight.stage != Stage::Resting);
        self.offset = None;
        match Backlog::open(&self.inbox) {
            Ok(Some(backlog)) => {
                let past = backlog.past();
                self.delivered = past.delivered;
                self.seen.clone_from(&past.seen);
                self.backlog = Some(backlog);
            }
            Ok(None) => {
                self.backlog = None;
                self.trouble = Some(format!(
                    "there is no inbox {}",
                    self.inbox.lines().display()
                ));
            }
            Err(e) => {
                self.backlog = None;
                self.trouble = Some(e.to_string());
            }
        }
    }

    fn read_inbox(&mut self, now: Instant) -> bool {
        if self.lanes.len() >= KNOWN {
            return false;
        }
        let Some(backlog) = &mut self.backlog else {
            return false;
        };
        let mut entries = Vec::new();
        let read = backlog.read_new(LOOK, |entry| entries.push(entry));
        let rebuilt = backlog.rebuilt();
        for entry in entries {
            self.take_in(entry, rebuilt, now);
        }
        match read {
            Ok(count) => count >= LOOK,
            Err(e) => {
                self.trouble = Some(format!("cannot read the inbox: {e}"));
                false
            }
        }
    }

    fn take_in(&mut self, entry: Entry, rebuilt: bool, now: Instant) {
        let line = Waiting {
            offset: entry.place.offset,
            length: entry.length,
        };
        let known = |flight: &Flight| {
            (flight.ack.inode, flight.ack.line_offset) == (entry.place.inode, line.offset)
                && flight.ack.sha256 == entry.sha256
        };
        if self.flights.iter().any(known) {
            return;
        }
        let message = match entry.message {
            Ok(message) => message,
            Err(refusal) => return self.refuse(line, entry.sha256, None, refusal),
        };
        if let Some(class) = self.seen.get(&message.msg_id).copied() {
            return self.repeat(line, entry.sha256, &message, class);
        }
        let lane = self.lanes.of(&Self::sender(&message), now);
        let begun = entry.ack.filter(|ack| ack.transcript_offset.is_some());
        // Nothing is known of what the offset was to tell: the transcript may know.
        let begun = begun.or_else(|| {
            rebuilt.then(|| Ack {
                transcript_offset: Some(0),
                ..self.blank(line.offset, entry.sha256.clone(), Some(&message))
            })
        });
        let shown = self.frames(&message).map(|(shown, _)| shown);
        match (begun, shown) {
            (Some(ack), Ok(shown)) => {
                self.proof.reach_back(ack.transcript_offset.unwrap_or(0));
                let peer = self.reach.peer();
                let shown = (shown, message.tagged);
                let flight = Flight::resumed(ack, lane, line.length, shown, peer, now);
                if flight.stage.holds_lane() {
                    self.lanes.hold(lane);
                }
                self.flights.push(flight);
            }
            _ => self.lanes.put(lane, line),
        }
    }

    fn read_proof(&mut self, now: Instant) -> Rows {
        if self.flights.is_empty() {
            self.proof.rest();
            return Rows::AllRead;
        }
        let mut found: Vec<Found> = Vec::new();
        let read = self
            .proof
            .read(&self.reach, self.inbox.session(), LOOK, |sighting| {
                found.push(match sighting {
                    Sighting::Accepted { text } => Found::Accepted(sha256(text.as_bytes())),
                    Sighting::Seen {
                        msg_id,
                        how,
                        merged,
                        text,
                    } => Found::Seen(msg_id, how, merged, text),
                });
            });
        for found in found {
            match found {
                Found::Accepted(shown) => self.accept(&shown),
                Found::Seen(msg_id, how, merged, text) => {
                    self.arrive_merged(msg_id, how, merged, &text);
                    self.arrive(msg_id, how);
                }
            }
        }
        match read {
            Ok(true) => Rows::More,
            Ok(false) => Rows::AllRead,
            Err(e) => {
                // What cannot be proved is not offered again either.
                self.trouble = Some(e.to_string());
                let later = now + ACCEPT;
                for flight in &mut self.flights {
                    match &mut flight.stage {
                        Stage::Offered(at) | Stage::LookedFor(at) => *at = (*at).max(later),
                        Stage::Writing | Stage::Resting | Stage::Accepted => {}
                    }
                }
                Rows::Unreadable
            }
        }
    }

    fn accept(&mut self, shown: &str) {
        let flight = self.flights.iter_mut().find(|flight| {
            matches!(
                flight.stage,
                Stage::Writing | Stage::Offered(_) | Stage::Resting
            ) && flight.shown == shown
        });
        let Some(flight) = flight else { return };
        if flight.stage == Stage::Resting {
            self.lanes.remove(flight.lane, flight.ack.line_offset);
        } else {
            self.lanes.accepted(flight.lane);
        }
        flight.stage = Stage::Accepted;
        flight.ack.state = LineState::Accepted;
        flight.ack.accepted_at = Some(clock::now());
        let ack = flight.ack.clone();
        self.trouble = None;
        self.record(ack);
    }

    /// Lines of one sender that waited together come as one: those with a tag are told by it, the
    /// others by their number, in their order.
    fn arrive_merged(&mut self, first: Uuid, how: Arrival, merged: usize, text: &str) {
        let lane = |flight: &&Flight| flight.ack.msg_id == Some(first);
        let Some(lane) = self.flights.iter().find(lane).map(|flight| flight.lane) else {
            return;
        };
        let mut others: Vec<(u64, Uuid, bool)> = Vec::new();
        for flight in &self.flights {
            let candidate = flight.lane == lane && flight.stage == Stage::Accepted;
            let (Some(id), Some(from)) = (flight.ack.msg_id, &flight.ack.from) else {
                continue;
            };
            let told = !flight.tagged || frame::has_tag(text, from, id);
            if candidate && id != first && told {
                others.push((flight.ack.line_offset, id, flight.tagged));
            }
        }
        // What is known for sure comes before what is only counted.
        others.sort_by_key(|(offset, _, tagged)| (!tagged, *offset));
        for (_, id, _) in others.into_iter().take(merged) {
            self.arrive(id, how);
        }
    }

    fn arrive(&mut self, msg_id: Uuid, how: Arrival) {
        let known = |flight: &Flight| flight.ack.msg_id == Some(msg_id);
        let Some(at) = self.flights.iter().position(known) else {
            return;
        };
        let mut flight = self.flights.swap_remove(at);
        if flight.stage == Stage::Resting {
            self.lanes.remove(flight.lane, flight.ack.line_offset);
        } else if flight.stage.holds_lane() {
            self.lanes.accepted(flight.lane);
        }
        let class = match how {
            Arrival::MidTurn => AckClass::DeliveredSteer,
            Arrival::NewTurn => AckClass::DeliveredStart,
        };
        let at = Some(clock::now());
        flight.ack.class = Some(class);
        flight.ack.state = LineState::Seen;
        flight.ack.accepted_at = flight.ack.accepted_at.or(at);
        flight.ack.seen_at = at;
        flight.ack.reason = None;
        self.seen.insert(msg_id, Some(class));
        self.delivered += 1;
        self.trouble = None;
        self.record(flight.ack);
    }

    /// What was not accepted in time was dropped. Only now that the transcript was read to its
    /// end can that be said.
    fn expire(&mut self, now: Instant) {
        let inode = self.backlog.as_ref().map(Backlog::inode);
        let mut at = 0;
        while let Some(flight) = self.flights.get_mut(at) {
            let line = flight.waiting();
            match flight.stage {
                Stage::Offered(deadline) if deadline <= now => {
                    self.lanes.dropped(flight.lane, line, now);
                }
                Stage::LookedFor(_) => self.lanes.released(flight.lane, line),
                Stage::Offered(_) | Stage::Writing | Stage::Resting | Stage::Accepted => {
                    at += 1;
                    continue;
                }
            }
            flight.stage = Stage::Resting;
            if Some(flight.ack.inode) != inode {
                // Its inbox is gone, and with it the line.
                self.lanes.remove(flight.lane, line.offset);
                self.flights.swap_remove(at);
            } else if flight.ack.attempts == 0 {
                // It was never offered: there is nothing to remember.
                self.flights.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// The earliest byte that is not handled.
    fn write_offset(&mut self) {
        let Some(backlog) = &self.backlog else {
            return;
        };
        if !self.unrecorded.is_empty() {
            return;
        }
        let inode = backlog.inode();
        let on_their_way = self
            .flights
            .iter()
            .filter(|flight| flight.ack.inode == inode)
            .map(|flight| flight.ack.line_offset)
            .min();
        let offset = [self.lanes.earliest(), on_their_way]
            .into_iter()
            .flatten()
            .fold(backlog.position(), u64::min);
        if self.offset == Some(offset) {
            return;
        }
        match self.inbox.write_offset(offset) {
            Ok(()) => self.offset = Some(offset),
            Err(e) => self.trouble = Some(e.to_string()),
        }
    }
}

/// How far the transcript was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    /// To its end.
    AllRead,
    /// There is more.
    More,
    /// It cannot be read.
    Unreadable,
}

enum Found {
    Accepted(String),
    Seen(Uuid, Arrival, usize, String),
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write files as others would"
)]
mod tests;
