//! What arrived: the transcript, read while something is on its way.

use std::time::Instant;

use uuid::Uuid;

use super::flight::{ACCEPT, Flight, Stage};
use super::{Delivery, LOOK};
use crate::inbox::frame;
use crate::inbox::{AckClass, Backlog, LineState, sha256};
use crate::platform::clock;
use crate::session::peer_lines::{Arrival, Sighting};

/// How far the transcript was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rows {
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

impl Delivery {
    pub(super) fn read_proof(&mut self, now: Instant) -> Rows {
        if self.flights.is_empty() {
            self.proof.rest();
            return Rows::AllRead;
        }
        let mut found: Vec<Found> = Vec::new();
        let read = self
            .proof
            .read(&self.reach, self.shown_in, LOOK, |sighting| {
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

    pub(super) fn accept(&mut self, shown: &str) {
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
    pub(super) fn arrive_merged(&mut self, first: Uuid, how: Arrival, merged: usize, text: &str) {
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

    pub(super) fn arrive(&mut self, msg_id: Uuid, how: Arrival) {
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
    pub(super) fn expire(&mut self, now: Instant) {
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
}
