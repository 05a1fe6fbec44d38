//! The next line for the door: chosen, made ready, put on record.

use std::time::Instant;

use super::flight::{Flight, Stage};
use super::lanes::{LaneId, Waiting};
use super::{DOOR_PAUSES, Delivery, Offer, QUEUE, Rows, TWIN_PAUSE};
use crate::inbox::frame;
use crate::inbox::{Ack, AckClass, LineState, Message, Priority, Refusal, sha256};
use crate::platform::{clock, host};
use crate::session::registry::Row;

impl Delivery {
    /// Makes the next line ready to be written, and puts it on record.
    pub fn offer(&mut self, now: Instant) -> Offer {
        if !self.may_offer() {
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

    /// Whether a line may be offered: none is being written, the queue has room, and what is on
    /// record is up to date.
    pub(super) fn may_offer(&self) -> bool {
        let mut stages = self.flights.iter().map(|flight| flight.stage);
        let writing = stages.clone().any(|stage| stage == Stage::Writing);
        let full = stages.by_ref().filter(|stage| stage.fills_queue()).count() >= QUEUE;
        !writing && !full && self.unrecorded.is_empty()
    }

    pub(super) fn stuck(&mut self, why: String, now: Instant) -> Offer {
        let pause = self
            .door_again
            .map_or(DOOR_PAUSES.0, |(_, last)| (last * 2).min(DOOR_PAUSES.1));
        self.door_again = Some((now + pause, pause));
        self.trouble = Some(why);
        Offer::None
    }

    pub(super) fn sender(message: &Message) -> String {
        // A plain line has no sender but the user whose file it is in.
        message.from.clone().unwrap_or_else(host::user_at_host)
    }

    /// What is shown of a message, and the frame around it.
    pub(super) fn frames(&self, message: &Message) -> Result<(String, Vec<u8>), Refusal> {
        let sender = Self::sender(message);
        let shown = frame::shown_text(message, &sender)?;
        let frame = frame::frame(message, &shown, &sender, self.inbox.session())?;
        Ok((sha256(shown.as_bytes()), frame))
    }

    /// Whether a line is on its way that could not be told from this one.
    pub(super) fn has_twin(&self, message: &Message, shown: &str, line: Waiting) -> bool {
        self.flights.iter().any(|flight| {
            flight.ack.line_offset != line.offset
                && (flight.ack.msg_id == Some(message.msg_id)
                    || (flight.stage.holds_lane() && flight.shown == shown))
        })
    }

    /// Puts a line on record as offered. Without that it is not written.
    pub(super) fn take_off(
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
            // What is expected: a session that is idle begins a turn with it, and one that is not
            // does with what is to come later.
            class: Some(if idle || message.priority == Priority::Later {
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
}
