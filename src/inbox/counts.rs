//! Counting an inbox: lines that wait, lines that arrived.
//!
//! What waits is what a [`Backlog`] hands out.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::{Backlog, Inbox};
use crate::error::{Error, Result};

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
