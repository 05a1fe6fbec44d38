//! What is on record: acks and the offset.

use super::Delivery;
use super::lanes::Waiting;
use crate::inbox::{Ack, AckClass, Backlog, LineState, Message, Refusal};
use crate::platform::clock;
use crate::store::Ledger;

impl Delivery {
    pub(super) fn blank(&self, line_offset: u64, sha256: String, message: Option<&Message>) -> Ack {
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

    pub(super) fn refuse(
        &mut self,
        line: Waiting,
        hash: String,
        message: Option<&Message>,
        why: Refusal,
    ) {
        let Refusal(reason) = why;
        self.record(Ack {
            class: Some(AckClass::Refused),
            reason: Some(reason),
            ..self.blank(line.offset, hash, message)
        });
    }

    /// A line whose message has arrived already, by another line: it is not carried twice.
    pub(super) fn repeat(
        &mut self,
        line: Waiting,
        hash: String,
        message: &Message,
        how: Option<AckClass>,
    ) {
        self.delivered += 1;
        self.record(Ack {
            class: how,
            state: LineState::Seen,
            seen_at: Some(clock::now()),
            reason: Some("a message with this id was seen before".to_owned()),
            ..self.blank(line.offset, hash, Some(message))
        });
    }

    pub(super) fn record(&mut self, ack: Ack) {
        self.unrecorded.push_back(ack);
        self.flush();
    }

    /// Writes what could not be written before, in its order.
    pub(super) fn flush(&mut self) {
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

    /// The earliest byte that is not handled.
    pub(super) fn write_offset(&mut self) {
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
