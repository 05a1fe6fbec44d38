//! What waits: the inbox, read as it grows.

use std::time::Instant;

use super::flight::{Flight, Stage};
use super::lanes::Waiting;
use super::{Delivery, KNOWN, LOOK};
use crate::inbox::{Ack, Backlog, Entry};

impl Delivery {
    /// Opens the inbox, and again when it is another file.
    pub(super) fn follow_inbox(&mut self) {
        match &self.backlog {
            Some(backlog) if backlog.is_current(&self.inbox) => {}
            Some(_) | None => self.reopen(),
        }
    }

    pub(super) fn reopen(&mut self) {
        self.lanes.clear();
        // What waited to be offered again is read again, if it is still there.
        self.flights.retain(|flight| flight.stage != Stage::Resting);
        self.offset = None;
        match Backlog::open(&self.inbox) {
            Ok(Some(mut backlog)) => {
                let past = backlog.take_past();
                self.delivered = past.delivered;
                self.seen = past.seen;
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

    pub(super) fn read_inbox(&mut self, now: Instant) -> bool {
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

    pub(super) fn take_in(&mut self, entry: Entry, rebuilt: bool, now: Instant) {
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
}
