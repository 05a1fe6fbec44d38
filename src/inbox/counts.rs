//! Counting an inbox: lines that wait, lines that arrived.
//!
//! What waits is what a [`Backlog`] hands out.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use jiff::Timestamp;

use super::{Ack, Backlog, Inbox, LineState};
use crate::error::{Error, Result};
use crate::store::{Ledger, LedgerLines};

/// What an inbox holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines that are not handled yet. An empty line is no message; a line without its line feed
    /// is not written yet.
    pub pending: u64,
    /// The bytes of those lines, line feeds included.
    pub pending_bytes: u64,
    /// Lines that reached the model's context: acks with state `seen`.
    pub delivered: u64,
    /// Acks that do not parse.
    pub bad_acks: u64,
}

/// Lines that reached the model's context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// How many.
    pub count: u64,
    /// Who sent them, each once, in the order of their first arrival.
    pub senders: Vec<String>,
}

/// Counts again only when something changed: a doorman asks every few seconds for hours.
#[derive(Debug)]
pub struct Counter {
    inbox: Inbox,
    seen: Option<[Stamp; 3]>,
    counts: Counts,
}

/// Tells whether a file may have changed.
type Stamp = Option<(u64, u64, i64, i64)>;

impl Counter {
    /// Nothing is counted yet.
    #[must_use]
    pub fn new(inbox: Inbox) -> Self {
        Self {
            inbox,
            seen: None,
            counts: Counts::default(),
        }
    }

    /// The counts as of now; the last ones when a file cannot be read.
    pub fn counts(&mut self) -> Counts {
        let now = [self.inbox.lines(), self.inbox.offset(), self.inbox.acks()].map(stamp);
        if self.seen != Some(now)
            && let Ok(counts) = count(&self.inbox)
        {
            self.seen = Some(now);
            self.counts = counts;
        }
        self.counts
    }
}

fn stamp(path: PathBuf) -> Stamp {
    let of = |meta: Metadata| (meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec());
    fs::metadata(path).ok().map(of)
}

pub(super) fn count(inbox: &Inbox) -> Result<Counts> {
    let Some(mut backlog) = Backlog::open(inbox)? else {
        return Ok(Counts::default());
    };
    let mut counts = Counts {
        delivered: backlog.past().delivered,
        bad_acks: backlog.past().bad,
        ..Counts::default()
    };
    backlog
        .read_new(u64::MAX, |entry| {
            counts.pending += 1;
            counts.pending_bytes += entry.length;
        })
        .map_err(|e| Error::io("read", &inbox.lines(), e))?;
    Ok(counts)
}

/// What arrived since then. A message that was only repeated has arrived before.
pub(super) fn arrivals(inbox: &Inbox, since: Timestamp) -> Result<Arrivals> {
    let mut arrivals = Arrivals::default();
    let acks: LedgerLines<Ack> = Ledger::at(inbox.acks()).read()?;
    for ack in acks.lines {
        let arrived = ack.state == LineState::Seen && ack.attempts > 0;
        if arrived && ack.seen_at.is_some_and(|at| at >= since) {
            arrivals.count += 1;
            let sender = ack.from.unwrap_or_default();
            if !arrivals.senders.contains(&sender) {
                arrivals.senders.push(sender);
            }
        }
    }
    Ok(arrivals)
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write files as others would"
)]
mod tests {
    use super::super::tests::scratch;
    use super::*;

    #[test]
    fn what_waits_is_counted_from_the_offset() {
        // lines, offset file, pending, bytes
        let table = [
            ("", Some("0"), 0, 0),
            ("one\ntwo\n", Some("0"), 2, 8),
            ("one\ntwo\n", None, 2, 8),
            ("one\ntwo\n", Some("4\n"), 1, 4),
            ("one\ntwo\n", Some("8"), 0, 0),
            ("one\ntwo\n", Some("garbage"), 2, 8),
            ("one\ntwo\n", Some("99"), 2, 8),
            ("one\n\ntwo", Some("0"), 1, 4),
        ];
        for (lines, offset, expected, bytes) in table {
            let (_folder, inbox) = scratch();
            fs::write(inbox.lines(), lines).unwrap();
            if let Some(offset) = offset {
                fs::write(inbox.offset(), offset).unwrap();
            }
            let counts = inbox.counts().unwrap();
            assert_eq!(
                (counts.pending, counts.pending_bytes),
                (expected, bytes),
                "{lines:?} from {offset:?}"
            );
        }
    }

    #[test]
    fn acks_tell_what_arrived() {
        let (_folder, inbox) = scratch();
        assert_eq!(inbox.counts().unwrap(), Counts::default());
        fs::write(inbox.lines(), "one\ntwo\n").unwrap();
        let inode = fs::metadata(inbox.lines()).unwrap().ino();
        let sha256 = super::super::sha256(b"one");
        let acks = format!(
            "{{\"state\":\"seen\",\"line_offset\":0,\"inode\":{inode},\"sha256\":\"{sha256}\"}}\n{{\n"
        );
        fs::write(inbox.acks(), acks).unwrap();
        let expected = Counts {
            pending: 1,
            pending_bytes: 4,
            delivered: 1,
            bad_acks: 1,
        };
        assert_eq!(inbox.counts().unwrap(), expected);
    }

    #[test]
    fn arrivals_are_those_since_then_with_their_senders() {
        let (_folder, inbox) = scratch();
        let at = |second| format!("2026-12-01T00:00:0{second}Z");
        let ack = |from: &str, state: &str, second: u8, attempts: u8| {
            let seen_at = at(second);
            format!(
                "{{\"state\":\"{state}\",\"line_offset\":0,\"inode\":1,\"from\":\"{from}\",\"seen_at\":\"{seen_at}\",\"attempts\":{attempts}}}\n"
            )
        };
        let acks = [
            ack("early", "seen", 1, 1),
            ack("b", "seen", 3, 1),
            ack("c", "accepted", 3, 1),
            ack("repeated", "seen", 4, 0),
            ack("a", "seen", 5, 2),
            ack("b", "seen", 6, 1),
        ];
        fs::write(inbox.acks(), acks.concat()).unwrap();
        let arrivals = inbox.arrivals(at(2).parse().unwrap()).unwrap();
        assert_eq!(
            (arrivals.count, arrivals.senders.join(" ")),
            (3, "b a".to_owned())
        );
    }

    #[test]
    fn a_counter_sees_every_change() {
        let (_folder, inbox) = scratch();
        let mut counter = Counter::new(inbox.clone());
        assert_eq!(counter.counts().pending, 0);
        fs::write(inbox.lines(), "one\n").unwrap();
        assert_eq!(counter.counts().pending, 1);
        assert_eq!(counter.counts().pending, 1);
        fs::write(inbox.offset(), "4").unwrap();
        assert_eq!(counter.counts().pending, 0);
    }
}
